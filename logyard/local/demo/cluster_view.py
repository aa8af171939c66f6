"""The cluster as a stock client and the disks show it: leaders, replicas, segments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from logyard.local.errors import LocalError

ANSWER_S = 10.0
NO_LEADER = -1

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as Metadata tells it; the first of `replicas` is the preferred leader."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One look at the cluster."""

    brokers: frozenset[int]
    controller: int
    partitions: Mapping[TopicPartition, Partition]

    def of(self, topic: str) -> dict[int, Partition]:
        return {number: found for (name, number), found in self.partitions.items() if name == topic}

    def unled(self) -> list[TopicPartition]:
        return [tp for tp, found in self.partitions.items() if found.leader not in self.brokers]

    def under_replicated(self) -> list[TopicPartition]:
        return [tp for tp, found in self.partitions.items() if set(found.isr) != set(found.replicas)]


def look(bootstrap: str) -> View:
    """Ask a broker for all there is. Raises LocalError where none answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "broker.address.family": "v4", "log_level": 0})
    try:
        found = admin.list_topics(timeout=ANSWER_S)
    except Exception as error:  # whatever the client says, it is no answer
        raise LocalError(f"no broker of {bootstrap} answers: {error}") from error
    partitions = {
        (topic.topic, number): Partition(p.leader, tuple(p.replicas), tuple(p.isrs))
        for topic in found.topics.values()
        for number, p in topic.partitions.items()
    }
    return View(frozenset(found.brokers), found.controller_id, partitions)


def directories(description: Mapping[str, Any], topic: str, partition: int) -> dict[int, Path]:
    """Where each broker of cluster.json keeps its replica of that partition; only those that have one."""
    found = {}
    for broker in description["brokers"]:
        for log_dir in broker["log_dirs"]:
            directory = Path(log_dir) / f"{topic}-{partition}"
            if directory.is_dir():
                found[int(broker["id"])] = directory
    return found


def segment_bases(directory: Path) -> list[int]:
    """The base offsets of a replica's segments, ascending; the last one is the active segment's."""
    return sorted(int(path.stem) for path in directory.glob("*.log") if path.stem.isdigit())


def log_bytes(directory: Path) -> int:
    """How many bytes the segments of a replica take, indexes left out."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def compactable_ends(description: Mapping[str, Any], topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Where the closed segments of each partition end: no replica's active segment may begin before that."""
    return {
        partition: min(segment_bases(directory)[-1] for directory in found.values())
        for partition in partitions
        if (found := directories(description, topic, partition))
    }


def topic_bytes(description: Mapping[str, Any], topic: str, partitions: Sequence[int]) -> int:
    """Bytes of all replicas of the topic."""
    return sum(log_bytes(d) for p in partitions for d in directories(description, topic, p).values())
