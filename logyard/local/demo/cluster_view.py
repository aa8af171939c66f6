"""Reads leaders, replicas and segments with a stock client and from the disks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from logyard.local.demo.loader import Reach
from logyard.local.errors import LocalError

ANSWER_S = 10.0
NO_LEADER = -1

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition in a Metadata answer; the first of `replicas` is the preferred leader."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The cluster's metadata at one time."""

    brokers: frozenset[int]
    controller: int
    partitions: Mapping[TopicPartition, Partition]

    def of(self, topic: str) -> dict[int, Partition]:
        return {number: found for (name, number), found in self.partitions.items() if name == topic}

    def unled(self) -> list[TopicPartition]:
        return [tp for tp, found in self.partitions.items() if found.leader not in self.brokers]

    def under_replicated(self) -> list[TopicPartition]:
        return [tp for tp, found in self.partitions.items() if set(found.isr) != set(found.replicas)]


def look(reach: Reach) -> View:
    """Return the metadata of all topics. Raises LocalError if no broker answers."""
    admin = AdminClient({**reach, "broker.address.family": "v4", "log_level": 0})
    try:
        found = admin.list_topics(timeout=ANSWER_S)
    except Exception as error:  # the client may raise anything
        raise LocalError(f"no broker of {reach['bootstrap.servers']} answers: {error}") from error
    partitions = {
        (topic.topic, number): Partition(p.leader, tuple(p.replicas), tuple(p.isrs))
        for topic in found.topics.values()
        for number, p in topic.partitions.items()
    }
    return View(frozenset(found.brokers), found.controller_id, partitions)


def directories(description: Mapping[str, Any], topic: str, partition: int) -> dict[int, Path]:
    """Return the directories of a partition's replicas by broker id, for the brokers in cluster.json."""
    found = {}
    for broker in description["brokers"]:
        for log_dir in broker["log_dirs"]:
            directory = Path(log_dir) / f"{topic}-{partition}"
            if directory.is_dir():
                found[int(broker["id"])] = directory
    return found


def segment_bases(directory: Path) -> list[int]:
    """Return the base offsets of a replica's segments, ascending; the last one is the active segment's."""
    return sorted(int(path.stem) for path in directory.glob("*.log") if path.stem.isdigit())


def log_bytes(directory: Path) -> int:
    """Return the bytes of a replica's segments, without indexes."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def compactable_ends(description: Mapping[str, Any], topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Return, by partition, the lowest base offset of the replicas' active segments: compaction stops there."""
    return {
        partition: min(segment_bases(directory)[-1] for directory in found.values())
        for partition in partitions
        if (found := directories(description, topic, partition))
    }


def topic_bytes(description: Mapping[str, Any], topic: str, partitions: Sequence[int]) -> int:
    """Return the bytes of all replicas of the topic."""
    return sum(log_bytes(d) for p in partitions for d in directories(description, topic, p).values())
