"""/feature: finalized features. In ZooKeeper mode there are none, and a name in it kills 3.9 brokers (facts §22)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logyard.broker.znodes import fields

PATH = "/feature"

DISABLED, ENABLED = 0, 1


@dataclass(frozen=True, slots=True)
class Features:
    """Whether features are in use, and each finalized feature's highest version level."""

    status: int = ENABLED
    levels: Mapping[str, int] = field(default_factory=dict)


def encode(features: Features) -> bytes:
    """Write version 2."""
    levels = {name: {"max_version_level": level} for name, level in features.levels.items()}
    return fields.dump({"version": 2, "status": features.status, "features": levels})


def decode(data: bytes, path: str = PATH) -> Features:
    """Read version 1 (which also has a lowest level, unused) or 2. Raises CorruptData."""
    content = fields.Fields.parse(path, data)
    content.version()
    status = content.integer("status")
    if status not in (DISABLED, ENABLED):
        raise content.wrong("status", "0 (disabled) or 1 (enabled)")
    features = content.optional_object("features")
    names = features.names()
    return Features(status, {name: features.object(name).integer("max_version_level") for name in names})
