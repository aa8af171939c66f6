"""/feature: finalized features. A name in it stops the brokers of Apache Kafka in ZooKeeper mode (facts §22)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logyard.broker.znodes import fields

PATH = "/feature"

DISABLED, ENABLED = 0, 1
VERSION_WITH_LOWEST, VERSION = 1, 2  # from inter.broker.protocol.version 3.3 on version 2


@dataclass(frozen=True, slots=True)
class Features:
    """Status (DISABLED or ENABLED), highest version level of each finalized feature, version of the znode's format."""

    status: int = ENABLED
    levels: Mapping[str, int] = field(default_factory=dict)
    version: int = VERSION


def encode(features: Features) -> bytes:
    """Write version 2 or 1; version 1 has each level again as the lowest one."""
    levels = {name: {"max_version_level": level} for name, level in features.levels.items()}
    if features.version == VERSION_WITH_LOWEST:
        levels = {name: {**entry, "min_version_level": features.levels[name]} for name, entry in levels.items()}
    return fields.dump({"version": features.version, "status": features.status, "features": levels})


def decode(data: bytes, path: str = PATH) -> Features:
    """Read version 1 (without its lowest levels) or 2. Raises CorruptData."""
    content = fields.Fields.parse(path, data)
    version = content.version()
    if version not in (VERSION_WITH_LOWEST, VERSION):
        raise content.wrong("version", "version 1 or 2")
    status = content.integer("status")
    if status not in (DISABLED, ENABLED):
        raise content.wrong("status", "0 (disabled) or 1 (enabled)")
    features = content.optional_object("features")
    levels = {name: features.object(name).integer("max_version_level") for name in features.names()}
    return Features(status, levels, version)
