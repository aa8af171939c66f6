"""Reads leaders, replicas and segments with a stock client and from the disks."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from logyard.local.demo.loader import Reach
from logyard.local.errors import LocalError

ANSWER_S = 10.0
NO_LEADER = -1

TopicPartition = tuple[str, int]

Segments = Mapping[tuple[int, int], Mapping[int, int]]
"""Of one topic, by partition and broker: the bytes of each segment by its base offset. The last one is active."""


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


def segments(log_dirs: Mapping[int, Sequence[str]], topic: str) -> Segments:
    """Return the segments of a topic in the brokers' log directories, which are on this machine."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for broker, folders in log_dirs.items():
        for directory in (one for folder in folders for one in Path(folder).glob(f"{glob.escape(topic)}-*")):
            partition = directory.name.removeprefix(f"{topic}-")
            if partition.isdigit() and directory.is_dir():
                logs = {int(path.stem): path.stat().st_size for path in directory.glob("*.log") if path.stem.isdigit()}
                found[int(partition), broker] = logs
    return found


def compactable_ends(found: Segments) -> dict[int, int]:
    """Return, by partition, the lowest base offset of the replicas' active segments: compaction stops there."""
    ends: dict[int, int] = {}
    for (partition, _), logs in found.items():
        ends[partition] = min(max(logs), ends.get(partition, max(logs)))
    return ends


def bytes_of(found: Segments, broker: int | None = None) -> int:
    """Return the bytes of the replicas' segments, without indexes; of one broker, or of all."""
    return sum(sum(logs.values()) for (_, at), logs in found.items() if broker in (at, None))
