"""/log_dir_event_notification/log_dir_event_N: notifies the controller that a broker's log directory has failed
(facts §9)."""

from logyard.broker.znodes import fields
from logyard.broker.znodes.paths import LOG_DIR_EVENTS

PATH = LOG_DIR_EVENTS
SEQUENCE_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"  # for a sequential create

_LOG_DIR_FAILED = 1  # the only kind of event


def path(name: str) -> str:
    return f"{LOG_DIR_EVENTS}/{name}"


def encode(broker_id: int) -> bytes:
    return fields.dump({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILED})


def decode(data: bytes, path: str = f"{LOG_DIR_EVENTS}/?") -> int:
    """Return the id of the broker whose directory failed. Raises CorruptData."""
    content = fields.Fields.parse(path, data)
    if content.integer("event") != _LOG_DIR_FAILED:
        raise content.wrong("event", "1 (a directory failed)")
    return content.integer("broker")
