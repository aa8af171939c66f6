"""Makes the fields of DescribeConfigs and CreateTopics answers from settings, and writes overrides to ZooKeeper."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.entries import ConfigEntry
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.ops import Create, Delete, OpResult, SetData, ZkCode, Znode, ZooKeeper

TOPIC, BROKER = 2, 4
WRITE_TRIES = 10


def topic_config_fields(config: BrokerConfig, overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return all settings of a topic with these overrides, as fields of a CreateTopics answer (v5 and later)."""
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": int(entry.source),
            "is_sensitive": entry.sensitive,
        }
        for entry in config.describe_topic(overrides)
    ]


def described(
    entries: Iterable[ConfigEntry], wanted: Iterable[str] | None, with_synonyms: bool, with_docs: bool
) -> list[dict[str, Any]]:
    """Return the wanted entries (None: all) as fields of a DescribeConfigs answer."""
    names = None if wanted is None else set(wanted)
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": int(entry.source),
            "is_default": not entry.synonyms or int(entry.source) == 5,
            "is_sensitive": entry.sensitive,
            "synonyms": [{"name": s.name, "value": s.value, "source": int(s.source)} for s in entry.synonyms]
            if with_synonyms
            else [],
            "config_type": int(entry.type),
            "documentation": entry.doc if with_docs else None,
        }
        for entry in entries
        if names is None or entry.name in names
    ]


async def change_overrides(
    zk: ZooKeeper,
    kind: str,
    name: str,
    change: Callable[[dict[str, str]], dict[str, str]],
    check: Callable[[Mapping[str, str]], None],
) -> None:
    """Read an entity's overrides, change and check them, write them (again if others wrote meanwhile), notify brokers.

    `change` and `check` raise ApiError to refuse. Raises ApiError also: UNKNOWN_SERVER_ERROR (others wrote each time),
    INVALID_CONFIG (the znode cannot be parsed).
    """
    path = configs.path(kind, name)
    for _ in range(WRITE_TRIES):
        (znode,) = await zk.read([path])
        try:
            before = {} if znode is None else configs.decode(znode.data, path)
        except CorruptData as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{error}: mend it before changing it") from error
        after = change(dict(before))
        check(after)
        result = await _write(zk, path, znode, after, keeps=kind in (configs.TOPICS, configs.BROKERS))
        if result is None or result.ok:
            notification = config_changes.encode(kind, name)
            (told,) = await zk.multi([Create(config_changes.SEQUENCE_PREFIX, notification, sequential=True)])
            if not told.ok:
                text = f"the settings of {kind}/{name} are written, but brokers were not notified ({told.code.value})"
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
            return
        if result.code is ZkCode.NO_NODE:
            await _create_parents(zk, path)
        elif result.code not in (ZkCode.BAD_VERSION, ZkCode.NODE_EXISTS):
            break
    raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the settings of {kind}/{name} could not be written: try again")


async def _write(
    zk: ZooKeeper, path: str, znode: Znode | None, settings: Mapping[str, str], *, keeps: bool
) -> OpResult | None:
    """Write an entity's settings. As in Kafka, users, clients and addresses without any have no znode (`keeps`: False),
    unless others are below it. None: there is nothing to write.
    """
    if not settings and not keeps:
        if znode is None:
            return None
        (result,) = await zk.multi([Delete(path, znode.version)])
        if result.ok:
            await _delete_empty_parents(zk, path)
        if result.code is not ZkCode.NOT_EMPTY:
            return result
    content = configs.encode(settings)
    write = Create(path, content) if znode is None else SetData(path, content, znode.version)
    (result,) = await zk.multi([write])
    return result


async def _delete_empty_parents(zk: ZooKeeper, path: str) -> None:
    """Delete `U/clients` and `U` above a user's client that is gone, where nothing is left in them."""
    folder, _, _ = path.rpartition("/")
    user, _, last = folder.rpartition("/")
    if last != configs.CLIENTS or not user.startswith(f"{configs.type_path(configs.USERS)}/"):
        return
    (deleted,) = await zk.multi([Delete(folder)])
    (znode,) = await zk.read([user])
    if not deleted.ok or znode is None:
        return
    try:
        is_empty = not configs.decode(znode.data, user)
    except CorruptData:
        return
    if is_empty:
        await zk.multi([Delete(user, znode.version)])  # refused if somebody has written meanwhile


async def _create_parents(zk: ZooKeeper, path: str) -> None:
    """Create the znodes above `path`: the quotas of a user's client are below a user that may have no znode."""
    parts = path.split("/")[1:-1]
    for depth in range(1, len(parts) + 1):
        await zk.multi([Create("/" + "/".join(parts[:depth]))])
