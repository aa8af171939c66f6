"""/config/<type>/<name>: dynamic configuration of topics, brokers, clients, users and ips (facts §1).

An entity is named as in Kafka's change notifications: a type and a name, both as they stand in the path,
so a user's client is type `users`, name `U/clients/C`. Users and clients are URL-encoded (`sanitize`).
"""

from collections.abc import Mapping
from urllib.parse import quote, unquote_plus

from logyard.broker.znodes import fields

TOPICS = "topics"
BROKERS = "brokers"
CLIENTS = "clients"
USERS = "users"
IPS = "ips"
TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS)

DEFAULT = "<default>"  # the entity whose settings hold where a broker, client, user or ip has none


def type_path(entity_type: str) -> str:
    return f"/config/{entity_type}"


def path(entity_type: str, entity_name: str) -> str:
    """The znode of one entity; `entity_name` is already sanitized where that applies."""
    return f"/config/{entity_type}/{entity_name}"


def topic_path(topic: str) -> str:
    return path(TOPICS, topic)


def broker_path(broker_id: int | None) -> str:
    """The znode of one broker, of all brokers for None."""
    return path(BROKERS, DEFAULT if broker_id is None else str(broker_id))


def sanitize(name: str) -> str:
    """URL-encode a user or client id so that it can be a znode's name and a metric's tag (KIP-55)."""
    # Java's encoder also escapes the tilde, which RFC 3986 leaves alone.
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """Undo `sanitize`; a plus means a space, as in every URL-encoded form."""
    return unquote_plus(name)


def encode(config: Mapping[str, str]) -> bytes:
    return fields.dump({"version": 1, "config": dict(config)})


def decode(data: bytes, path: str = "/config/?") -> dict[str, str]:
    """Read an entity's settings; an empty znode has none. Raises CorruptData."""
    if not data:
        return {}
    content = fields.Fields.parse(path, data)
    if content.version() != 1:
        raise content.wrong("version", "version 1")
    config = content.object("config")
    return {key: config.text(key) for key in config.names()}
