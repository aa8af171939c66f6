"""Makes the fields of DescribeConfigs and CreateTopics answers from settings, and writes overrides to ZooKeeper."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.entries import ConfigEntry, ConfigSource
from logyard.broker.errors import ApiError, CorruptData, ErrorCode, LogyardError
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.content import check_size
from logyard.broker.znodes.ops import Create, Delete, SessionExpired, SetData, ZkCode, Znode, ZooKeeper, refused

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
WRITE_TRIES = 10
# Whose settings are described in one turn of the event loop, about 5 ms: a client may name thousands in some kilobytes.
TOPICS_PER_TURN = 16


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


def meant_for_another(broker_id: int, name: str) -> ApiError:
    """The refusal of a resource that is another broker's: its id is `name`, ours `broker_id`."""
    return ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {broker_id}: send this to broker {name}")


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
            "is_default": entry.source is ConfigSource.DEFAULT
            or (not entry.synonyms and entry.source is not ConfigSource.DYNAMIC_BROKER_LOGGER),
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
    too_large: ErrorCode = ErrorCode.INVALID_CONFIG,
    *,
    validate_only: bool = False,
) -> None:
    """Read an entity's overrides, change and check them, write them (again if others wrote meanwhile), notify brokers.
    With `validate_only` nothing is written, and what would be refused before that is.

    `change` and `check` raise ApiError to refuse. Raises ApiError also: UNKNOWN_SERVER_ERROR (others wrote each time;
    the znode may not be read), INVALID_CONFIG (it cannot be parsed), `too_large` (ZooKeeper would not take it).
    """
    path = configs.path(kind, name)
    configs.check_path(path, too_large)
    for _ in range(WRITE_TRIES):
        try:
            (znode,) = await zk.read([path])
            before = {} if znode is None else configs.decode(znode.data, path)
        except SessionExpired:
            raise
        except CorruptData as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{error}: mend it before changing it") from error
        except LogyardError as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        after = change(dict(before))
        check(after)
        notice = config_changes.notice(kind, name)
        content = configs.encode(after)
        check_size("the settings", content, too_large, 0 if znode is None else len(znode.data))
        if validate_only:
            return
        is_kept = bool(after) or kind in (configs.TOPICS, configs.BROKERS)
        problem = await _write(zk, path, znode, content, notice, is_kept=is_kept)
        if problem is None:
            return
        if problem is ZkCode.NO_NODE:
            await _create_parents(zk, path)
            await _create_parents(zk, notice.path)
        elif problem not in (ZkCode.BAD_VERSION, ZkCode.NODE_EXISTS):
            break
    raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the settings of {kind}/{name} could not be written: try again")


async def _write(
    zk: ZooKeeper, path: str, znode: Znode | None, content: bytes, notice: Create, *, is_kept: bool
) -> ZkCode | None:
    """Write an entity's settings and the notification; return why nothing was written, None if all was.

    Both in one step, other than Kafka: a broker that dies between them would leave settings that no broker hears of.
    As in Kafka, users, clients and addresses without settings have no znode, unless others are below it.
    """
    if not is_kept:
        removal = [] if znode is None else [Delete(path, znode.version)]
        problem = refused(await zk.multi([*removal, notice]))
        if removal and problem is None:
            await _delete_empty_parents(zk, path)
        if problem is not ZkCode.NOT_EMPTY:
            return problem
    write = Create(path, content) if znode is None else SetData(path, content, znode.version)
    return refused(await zk.multi([write, notice]))


async def _delete_empty_parents(zk: ZooKeeper, path: str) -> None:
    """Delete `U/clients` and `U` above a user's client that is gone, where nothing is left in them."""
    folder, _, _ = path.rpartition("/")
    user, _, last = folder.rpartition("/")
    if last != configs.CLIENTS or not user.startswith(f"{configs.type_path(configs.USERS)}/"):
        return
    (deleted,) = await zk.multi([Delete(folder)])
    (znode,) = await zk.read([user])
    if deleted.ok and znode is not None and configs.holds_nothing(znode.data):
        await zk.multi([Delete(user, znode.version)])  # refused if somebody has written meanwhile


async def _create_parents(zk: ZooKeeper, path: str) -> None:
    """Create the znodes above `path`: the quotas of a user's client are below a user that may have no znode."""
    parts = path.split("/")[1:-1]
    for depth in range(1, len(parts) + 1):
        await zk.multi([Create("/" + "/".join(parts[:depth]))])
