"""Offsets as their leaders tell them, all asked at once: one that does not answer spoils nobody else's answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from logyard.broker.model import TopicPartition
from logyard.login.meanings import meaning, silence

# So long one is waited for that did not answer last time, where others wait for the answer.
_SILENT_MS = 1000


@dataclass(frozen=True, slots=True)
class ToldOffsets:
    """`untold`: why the offsets of the other partitions are not known now; `silent`: the leaders without an answer."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    untold: Mapping[TopicPartition, str] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()


class EachSender(Protocol):
    """The part of `connection.Connection` that is used."""

    def send_each(self, requests: Mapping[int, Any], timeouts_ms: Mapping[int, int]) -> dict[int, Any]: ...

    def refresh(self) -> None: ...


def ask_leaders(
    connection: EachSender, leaders: Mapping[TopicPartition, int], timestamp: int, timeout_ms: int, silent: set[int]
) -> ToldOffsets:
    """Ask each leader once for the first or the last offsets of its partitions.

    :param silent: the leaders that gave no answer last time, which is brought up to date.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, leader in leaders.items():
        by_leader.setdefault(leader, []).append(tp)
    patience = {leader: min(timeout_ms, _SILENT_MS) if leader in silent else timeout_ms for leader in by_leader}
    requests = {leader: _request(partitions, timestamp) for leader, partitions in by_leader.items()}
    offsets: dict[TopicPartition, int] = {}
    untold: dict[TopicPartition, str] = {}
    for leader, answer in connection.send_each(requests, patience).items():
        if isinstance(answer, Exception):
            silent.add(leader)
            reason = f"broker {leader}: {silence(answer)}"
            untold |= dict.fromkeys(by_leader[leader], reason)
            continue
        silent.discard(leader)
        for topic in answer.topics:
            for found in topic.partitions:
                tp = TopicPartition(topic.name, found.partition_index)
                if found.error_code:
                    untold[tp] = f"{tp}: {meaning(found.error_code)}"
                else:
                    offsets[tp] = found.offset
    if untold:
        connection.refresh()  # a leader may be elsewhere, or have another address
    return ToldOffsets(offsets, untold, frozenset(silent & by_leader.keys()))


def _request(partitions: list[TopicPartition], timestamp: int) -> Any:
    from kafka.protocol.consumer import ListOffsetsRequest

    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted: dict[str, list[Any]] = {}
    for tp in partitions:
        asked = topic.ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
        wanted.setdefault(tp.topic, []).append(asked)
    # Version 0 has several offsets of a partition; no broker that answers us lacks 1.
    named = [topic(name=name, partitions=rows) for name, rows in wanted.items()]
    return ListOffsetsRequest(isolation_level=0, topics=named, min_version=1)
