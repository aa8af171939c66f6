"""How far a stream has read each partition, and the JSON of it that Spark keeps in the query's checkpoint. Pure.

An offset is `{"topics": {"flights": {"id": topic id, "next": {"0": 42}, "epochs": {"0": 3}}}}`, its keys sorted (Spark
compares texts). The topic id tells a topic that was deleted and created again: that is data loss, like a missing
offset. The epoch is the leader epoch of the last record before the offset: it tells records that were lost after they
were read, and others in their place (epochs.py). Earlier versions kept no epochs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.segments.epochs import UNKNOWN

SHOWN_MAX = 200


class Position(NamedTuple):
    """How far one partition was read: its topic's id, the next offset, and the leader epoch of the record before it."""

    topic_id: str | None
    offset: int
    epoch: int = UNKNOWN


def offset_of(ends: Mapping[TopicPartition, Position]) -> dict[str, Any]:
    """Return positions as the JSON that Spark keeps."""
    topics: dict[str, Any] = {}
    for tp, (topic_id, offset, epoch) in sorted(ends.items()):
        topic = topics.setdefault(tp.topic, {"id": topic_id or "", "next": {}})
        topic["next"][str(tp.partition)] = offset
        if epoch != UNKNOWN:
            topic.setdefault("epochs", {})[str(tp.partition)] = epoch
    return {"topics": topics}


def positions(offset: Mapping[str, Any]) -> dict[TopicPartition, Position]:
    """The inverse of offset_of. Raises BadOption for what that has not made: a checkpoint of another source would look
    like one in which nothing is read yet."""
    try:
        return {
            TopicPartition(topic, int(partition)): Position(
                known["id"] or None, int(at), int(known.get("epochs", {}).get(partition, UNKNOWN))
            )
            for topic, known in offset["topics"].items()
            for partition, at in known["next"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadOption(
            f"the checkpoint holds offsets that are not of this source ({str(offset)[:SHOWN_MAX]}): give the query"
            " another checkpointLocation"
        ) from None
