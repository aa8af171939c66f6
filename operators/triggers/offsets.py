"""Waiting for offsets: a group catches up, a topic is written up to an offset; pure functions of an observation."""

from collections.abc import Mapping, Sequence
from typing import Any

from logyard.admin.cluster.observation import EVERY_TOPIC, Observation, Wanted
from logyard.broker.model import TopicPartition
from logyard.operators.triggers.base import ClusterTrigger
from logyard.operators.triggers.cluster import some


def beyond_line(beyond: Mapping[str, int]) -> str:
    """What commits beyond the ends of their logs mean, for a log; `beyond`: partition → by how many records."""
    named = some([f"{tp} by {records}" for tp, records in beyond.items()])
    return (
        f"commits are beyond the end of the log ({named}), which counts as no lag: records were lost, or the topic was "
        "made anew, and what a consumer reads next is for its auto.offset.reset"
    )


class ConsumerLagBelowTrigger(ClusterTrigger):
    """The records that a group has left to read, of all its partitions or those of some topics, are at most `max_lag`.

    :param group: the group; the trigger also waits for its first commit.
    :param topics: topics that count; empty: those that the group has committed offsets for.
    :param max_lag: the most records that may be left.
    """

    def __init__(self, *, group: str, topics: Sequence[str] | None, max_lag: int, **waiting: Any) -> None:
        super().__init__(**waiting)
        self.group = group
        self.topics = topics
        self.max_lag = max_lag

    def wants(self) -> Wanted:
        topics = frozenset(self.topics or ())
        return Wanted(frozenset({self.group}), topics, starts=topics or frozenset({EVERY_TOPIC}), ready=topics)

    def look(self, seen: Observation) -> dict[str, Any] | None:
        lag = seen.lag(self.group, self.topics or ())
        if self._absent(seen) or not lag or not seen.committed[self.group] or sum(lag.values()) > self.max_lag:
            return None
        beyond = seen.beyond(self.group, self.topics or ())
        return {
            "group": self.group,
            "lag": sum(lag.values()),
            "partitions": {str(tp): records for tp, records in lag.items()},
            **({"beyond_end": {str(tp): records for tp, records in beyond.items()}} if beyond else {}),
        }

    def _absent(self, seen: Observation) -> list[str]:
        return sorted(set(self.topics or ()) - set(seen.snapshot.topics))

    def missing(self, seen: Observation) -> str:
        if self._absent(seen):
            return f"topics {some(self._absent(seen))} to appear"
        lag = seen.lag(self.group, self.topics or ())
        if lag is None:
            untold = [topic for topic in self.topics or () if seen.snapshot.ready(topic) and seen.listed(topic) is None]
            why = f"the controller does not tell which partitions {some(untold)} has" if untold else ""
            why = seen.problems.get(self.group) or why or seen.problems.get("") or "a partition has no leader"
            return f"the lag of group {self.group} to be known ({why})"
        if not lag or not seen.committed[self.group]:
            return f"group {self.group} to commit offsets"
        text = f"group {self.group} to catch up: {sum(lag.values())} records behind, {self.max_lag} allowed"
        beyond = {str(tp): records for tp, records in seen.beyond(self.group, self.topics or ()).items()}
        return f"{text}; {beyond_line(beyond)}" if beyond else text


class OffsetsReachedTrigger(ClusterTrigger):
    """Partitions of a topic have been written up to given offsets (their end offset is at least that).

    Which partitions it has, the controller's broker tells: another may not have heard of new ones.

    :param offsets: partition (as text: what JSON has for keys) → offset; the key `*` stands for every partition.
    """

    def __init__(self, *, topic: str, offsets: Mapping[str, int], **waiting: Any) -> None:
        super().__init__(**waiting)
        self.topic = topic
        self.offsets = offsets

    def wants(self) -> Wanted:
        topics = frozenset({self.topic})
        return Wanted(topics=topics, ready=topics if "*" in self.offsets else frozenset())

    def look(self, seen: Observation) -> dict[str, Any] | None:
        if self.topic not in seen.snapshot.topics or self._is_untold(seen) or self._behind(seen):
            return None
        ends = {tp.partition: end for tp, end in seen.ends.items() if tp.topic == self.topic}
        return {"topic": self.topic, "offsets": {str(partition): end for partition, end in sorted(ends.items())}}

    def missing(self, seen: Observation) -> str:
        if self.topic not in seen.snapshot.topics:
            return f"topic {self.topic} to appear"
        if self._is_untold(seen) and seen.snapshot.ready(self.topic):
            return f"the controller to tell which partitions topic {self.topic} has"
        behind = [f"{tp} at {seen.ends.get(tp, 'an unknown offset')} of {wanted}" for tp, wanted in self._behind(seen)]
        return f"offsets: {some(behind)}"

    def _is_untold(self, seen: Observation) -> bool:
        return "*" in self.offsets and seen.listed(self.topic) is None

    def _behind(self, seen: Observation) -> list[tuple[TopicPartition, int]]:
        wanted = {TopicPartition(self.topic, int(p)): int(o) for p, o in self.offsets.items() if p != "*"}
        if "*" in self.offsets:
            for tp in seen.listed(self.topic) or [tp for tp, _ in seen.snapshot.partitions([self.topic])]:
                wanted.setdefault(tp, int(self.offsets["*"]))
        return [(tp, offset) for tp, offset in sorted(wanted.items()) if seen.ends.get(tp, -1) < offset]
