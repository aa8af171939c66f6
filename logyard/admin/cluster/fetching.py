"""Batches of one partition, by Fetch: for tools that look at records; sent by `cluster/requests.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from logyard.admin.cluster import translation
from logyard.broker.model import TopicPartition
from logyard.login.meanings import meaning

# From 13 on a topic is named by its id.
_VERSION_MAX = 12
_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class Fetched:
    """Batches from an offset on, the last of which may be cut off. `end`: the high watermark; `start`: the log's first
    offset (-1: an old broker did not tell)."""

    data: bytes
    start: int
    end: int


class FetchSender(Protocol):
    """The part of `requests.ClusterRequests` that is used."""

    def ask(self, make: Callable[[], Any], node: int | None = None) -> Any: ...


def fetch(sender: FetchSender, tp: TopicPartition, leader: int, offset: int, size_max: int) -> Fetched:
    """Ask the leader for about `size_max` bytes of batches; the first batch comes whole, however large it is.

    Records of open and aborted transactions are among them. Raises ApiError (OFFSET_OUT_OF_RANGE,
    NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED …), ClusterUnreachable.
    """
    from kafka.protocol.consumer import FetchRequest

    topic = FetchRequest.FetchTopic
    asked = topic.FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=size_max)

    def make() -> Any:
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=size_max,
            isolation_level=0,
            topics=[topic(topic=tp.topic, partitions=[asked])],
            max_version=_VERSION_MAX,
        )

    response = sender.ask(make, leader)
    translation.refuse(getattr(response, "error_code", 0), None)
    (found,) = response.responses[0].partitions
    translation.refuse(found.error_code, f"{tp}: {meaning(found.error_code)}")
    return Fetched(bytes(found.records or b""), found.log_start_offset, found.high_watermark)
