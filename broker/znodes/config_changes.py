"""/config/changes/config_change_N: notifies brokers of an entity whose configuration has changed (facts §1).

Reads versions 1 and 2, writes 2.
"""

from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import configs, fields
from logyard.broker.znodes.ops import Create
from logyard.broker.znodes.paths import CONFIG_CHANGES

PATH = CONFIG_CHANGES
SEQUENCE_PREFIX = f"{CONFIG_CHANGES}/config_change_"

# A notification that is so much older than another one is deleted by the brokers (facts §1).
EXPIRATION_MS = 15 * 60 * 1000


class ConfigChange(NamedTuple):
    """The entity to read again; type and name are those in its path below /config."""

    entity_type: str
    entity_name: str


def path(name: str) -> str:
    return f"{CONFIG_CHANGES}/{name}"


def encode(entity_type: str, entity_name: str) -> bytes:
    return fields.dump({"version": 2, "entity_path": f"{entity_type}/{entity_name}"})


def notice(entity_type: str, entity_name: str) -> Create:
    """Return the notification that has brokers read an entity's settings again."""
    return Create(SEQUENCE_PREFIX, encode(entity_type, entity_name), sequential=True)


def decode(data: bytes, path: str = f"{CONFIG_CHANGES}/?") -> ConfigChange:
    """Read a notification. Raises CorruptData."""
    content = fields.Fields.parse(path, data)
    version = content.version()
    if version == 1:
        entity_type, entity_name = content.text("entity_type"), content.text("entity_name")
        if entity_type not in (configs.TOPICS, configs.CLIENTS):
            raise content.wrong("entity_type", "topics or clients")
    elif version == 2:
        entity_type, slash, entity_name = content.text("entity_path").partition("/")
        if not slash or entity_type not in configs.TYPES:
            raise content.wrong("entity_path", f"one of {', '.join(configs.TYPES)}, a slash and a name")
    else:
        raise content.wrong("version", "version 1 or 2")
    if not entity_name:
        raise CorruptData(f"znode {path}: the changed entity has no name")
    return ConfigChange(entity_type, entity_name)
