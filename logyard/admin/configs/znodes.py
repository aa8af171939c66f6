"""Settings by the znodes below /config: for brokers that are down, users' credentials, and clusters older than 3.0."""

import os
from collections.abc import Mapping, Sequence

from logyard.admin.configs.entities import (
    BROKERS,
    CLIENTS,
    DEFAULT,
    SCRAM,
    TOPICS,
    USERS,
    BadConfig,
    Entity,
    check_client_settings,
    credential,
    parse_credential,
    refuse_unknown,
)
from logyard.admin.zookeeper.cluster_client import ZooKeeperClusterClient
from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.broker.znodes import brokers, configs, topics


def describe(znodes: ZnodeClient, entity: Entity) -> list[tuple[Entity, dict[str, str]]]:
    """The settings of one entity, or of all entities of its types that have any."""
    found = []
    for one in [entity] if entity.names is not None else _all(znodes, entity):
        znode = znodes.read([configs.path(_znode_type(one), znode_name(one))])[0]
        values = {} if znode is None else configs.decode(znode.data)
        if values or entity.names is not None:
            found.append((one, _without_secrets(one, values)))
    return found


def alter(znodes: ZnodeClient, entity: Entity, add: Mapping[str, str], delete: Sequence[str]) -> None:
    """Set and remove settings, and notify the brokers. Raises BadConfig, EnsembleUnreachable.

    Brokers do not check znodes, so a broker's settings are refused while that broker runs (the defaults: while any
    broker runs), as in Kafka's tool.
    """
    if entity.type == BROKERS:
        _refuse_running(znodes, entity)
    if entity.type == TOPICS and znodes.read([topics.topic_path(entity.name or "")])[0] is None:
        raise BadConfig(f"Topic {entity.name} does not exist")
    if entity.is_quota:
        check_client_settings(entity, [*add, *delete])
    values = {key: _stored(key, value) for key, value in add.items()}
    znode = znodes.read([configs.path(_znode_type(entity), znode_name(entity))])[0]
    refuse_unknown(delete, [] if znode is None else configs.decode(znode.data))
    ZooKeeperClusterClient(znodes).alter_entity(_znode_type(entity), znode_name(entity), values, delete)


def znode_name(entity: Entity) -> str:
    """An entity's path below its type: `U/clients/C` for a user's client."""
    parts = [
        configs.DEFAULT if name == DEFAULT else configs.sanitize(name) if kind in (USERS, CLIENTS) else name
        for kind, name in zip(entity.types, entity.names or (), strict=True)
    ]
    return f"/{CLIENTS}/".join(parts)


def _znode_type(entity: Entity) -> str:
    return entity.types[0]


def _all(znodes: ZnodeClient, entity: Entity) -> list[Entity]:
    first = [_name(entity.types[0], name) for name in znodes.children(configs.type_path(entity.types[0])) or ()]
    if len(entity.types) == 1:
        return [Entity(entity.types, (name,)) for name in first]
    found: list[Entity] = []
    for name in first:
        parent = configs.path(entity.types[0], znode_name(Entity(entity.types[:1], (name,))))
        children = znodes.children(f"{parent}/{entity.types[1]}") or ()
        found += [Entity(entity.types, (name, _name(entity.types[1], child))) for child in children]
    return found


def _name(kind: str, name: str) -> str:
    if name == configs.DEFAULT:
        return DEFAULT
    return configs.desanitize(name) if kind in (USERS, CLIENTS) else name


def _stored(key: str, value: str) -> str:
    if key not in SCRAM:
        return value
    iterations, password = parse_credential(key, value)
    return credential(key, password, iterations, os.urandom(24))


def _without_secrets(entity: Entity, values: Mapping[str, str]) -> dict[str, str]:
    """A credential's keys are as sensitive as a password, so only the iterations are shown."""
    return {
        key: value.rpartition(",")[2] if entity.type == USERS and key in SCRAM else value
        for key, value in values.items()
    }


def _refuse_running(znodes: ZnodeClient, entity: Entity) -> None:
    live = znodes.children(brokers.IDS_PATH) or []
    running = live if entity.name == DEFAULT else [name for name in live if name == entity.name]
    if running:
        raise BadConfig(
            f"--bootstrap-server must be given to update brokers' configs: broker {', '.join(running)} is running, "
            "and znodes would not be checked"
        )
