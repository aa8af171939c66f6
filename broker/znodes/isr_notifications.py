"""/isr_change_notification/isr_change_N: partitions whose state znodes a leader has written itself (facts §10)."""

from collections.abc import Sequence

from logyard.broker.model import TopicPartition
from logyard.broker.znodes import fields
from logyard.broker.znodes.paths import ISR_NOTIFICATIONS

PATH = ISR_NOTIFICATIONS
SEQUENCE_PREFIX = f"{ISR_NOTIFICATIONS}/isr_change_"  # for a sequential create


def path(name: str) -> str:
    return f"{ISR_NOTIFICATIONS}/{name}"


def encode(partitions: Sequence[TopicPartition]) -> bytes:
    return fields.dump({"version": 1, "partitions": fields.partitions_json(partitions)})


def decode(data: bytes, path: str = f"{ISR_NOTIFICATIONS}/?") -> list[TopicPartition]:
    """Read the partitions in the order written, each once. Raises CorruptData."""
    entries = fields.Fields.parse(path, data).objects("partitions")
    return list(dict.fromkeys(entry.topic_partition() for entry in entries))
