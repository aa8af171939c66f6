"""/config/<type>/<name>: dynamic configuration of topics, brokers, clients, users and ips (facts §1).

An entity has a type and a name, as in Kafka's change notifications: both as they are in the path. So a user's client
has type `users`, name `U/clients/C`. Users and clients are URL-encoded (`sanitize`).
"""

from collections.abc import Mapping
from urllib.parse import quote, unquote_plus

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.znodes import fields

TOPICS = "topics"
BROKERS = "brokers"
CLIENTS = "clients"
USERS = "users"
IPS = "ips"
TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS)

PATH_BYTES_MAX = 64 * 1024

DEFAULT = "<default>"  # the entity with the defaults of all brokers, clients, users or ips


def type_path(entity_type: str) -> str:
    return f"/config/{entity_type}"


def path(entity_type: str, entity_name: str) -> str:
    """Return the path of an entity; users and clients in `entity_name` are URL-encoded already."""
    return f"/config/{entity_type}/{entity_name}"


def topic_path(topic: str) -> str:
    return path(TOPICS, topic)


def broker_path(broker_id: int | None) -> str:
    """Return the path of a broker's settings; None: those of all brokers."""
    return path(BROKERS, DEFAULT if broker_id is None else str(broker_id))


def sanitize(name: str) -> str:
    """URL-encode a user or client id so that it can be a znode's name and a metric's tag (KIP-55)."""
    # Java's encoder also escapes the tilde; Python's does not (RFC 3986).
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """Undo `sanitize`; a plus is a space, as in URL-encoded forms."""
    return unquote_plus(name)


def encode(config: Mapping[str, str]) -> bytes:
    return fields.dump({"version": 1, "config": dict(config)})


def check_path(path: str, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
    """Raise ApiError(code) if an entity's path is longer than ZooKeeper should be asked for."""
    if len(path.encode()) > PATH_BYTES_MAX:
        raise ApiError(code, f"The name is too long: its path in ZooKeeper has at most {PATH_BYTES_MAX} bytes.")


def decode(data: bytes, path: str = "/config/?") -> dict[str, str]:
    """Return an entity's settings; an empty znode has none. Raises CorruptData."""
    if not data:
        return {}
    content = fields.Fields.parse(path, data)
    if content.version() != 1:
        raise content.wrong("version", "version 1")
    try:
        config = content.object("config")
        return {key: config.text(key) for key in config.names()}
    except CorruptData:
        # Without what was found: users' znodes have credentials, brokers' have passwords.
        raise CorruptData(f"znode {path}: 'config' is expected to be an object with strings") from None


def holds_nothing(data: bytes) -> bool:
    """Say whether an entity's znode has no settings; one that cannot be decoded may have some."""
    try:
        return not decode(data)
    except CorruptData:
        return False
