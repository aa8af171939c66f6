"""What is kept of a cluster at one moment: counters and gauges of its topics, groups and brokers, packed small; pure.

Only what grows (offsets) and what is there (bytes, lag) is kept, never a rate: so a moment that is left out, or dropped
when a history gets old, makes no other value wrong.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Of a larger cluster the topics with most bytes, and the groups with the largest lag, are kept one by one.
TOPICS_MAX, GROUPS_MAX, READ_MAX, DIRECTORIES_MAX = 500, 300, 50, 16
_UNPACKED_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class TopicPoint:
    """Sums over a topic's partitions: end offsets, records between start and end, bytes of the leaders and of all."""

    end: int
    records: int
    leader_bytes: int
    bytes: int

    @property
    def record_bytes(self) -> float:
        """The mean size of a record on disk; 0 where there is none."""
        return self.leader_bytes / self.records if self.records > 0 else 0.0


@dataclass(frozen=True, slots=True)
class GroupPoint:
    """By topic: the sum of committed offsets, and the lag."""

    topics: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        return sum(lag for _, lag in self.topics.values())


@dataclass(frozen=True, slots=True)
class Sample:
    """`bytes`: of all replicas of all topics, also of those that are not kept one by one.

    `disks`: broker → directory → total and usable bytes, where the broker tells. `cluster`: its id; "": not known.
    A topic of which a partition did not answer is left out: with it missing, its sums would jump.
    """

    topics: Mapping[str, TopicPoint] = field(default_factory=dict)
    groups: Mapping[str, GroupPoint] = field(default_factory=dict)
    brokers: Mapping[int, int] = field(default_factory=dict)
    bytes: int = 0
    disks: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    cluster: str = ""

    def bounded(self) -> "Sample":
        """Without the smaller topics and groups, where there are too many."""
        topics = sorted(self.topics, key=lambda name: (-self.topics[name].bytes, name))[:TOPICS_MAX]
        groups = sorted(self.groups, key=lambda name: (-self.groups[name].lag, name))[:GROUPS_MAX]
        return Sample(
            {name: self.topics[name] for name in topics},
            {name: GroupPoint(dict(sorted(self.groups[name].topics.items())[:READ_MAX])) for name in groups},
            self.brokers,
            self.bytes,
            {broker: dict(sorted(dirs.items())[:DIRECTORIES_MAX]) for broker, dirs in self.disks.items()},
            self.cluster,
        )

    def is_of(self, other: "Sample") -> bool:
        """Whether both may be of one cluster: a connection may have been edited to lead to another."""
        return "" in (self.cluster, other.cluster) or self.cluster == other.cluster


@dataclass(frozen=True, slots=True)
class Only:
    """What is wanted of samples: one topic and one group, None for all of them, "" for none; of groups what they read
    of one topic, None: of all."""

    topic: str | None = None
    group: str | None = None
    reads: str | None = None


ALL = Only()


def pack(sample: Sample) -> bytes:
    """Two parts: what is of the whole cluster, which is short, and its topics and groups."""
    kept = sample.bounded()
    whole = {
        "b": {str(broker): size for broker, size in kept.brokers.items()},
        "s": kept.bytes,
        "d": {str(broker): {path: list(pair) for path, pair in dirs.items()} for broker, dirs in kept.disks.items()},
        "c": kept.cluster,
    }
    parts = {
        "t": {name: [p.end, p.records, p.leader_bytes, p.bytes] for name, p in kept.topics.items()},
        "g": {name: {topic: list(pair) for topic, pair in p.topics.items()} for name, p in kept.groups.items()},
    }
    return b"".join(zlib.compress(json.dumps(part, separators=(",", ":")).encode(), 6) for part in (whole, parts))


def unpack(data: bytes, only: Only = ALL) -> Sample | None:
    """None where the bytes are no sample: of a later version, or damaged."""
    try:
        content, rest = _part(data)
        if "t" not in content and (only.topic, only.group) != ("", ""):  # earlier versions had one part
            content |= _part(rest)[0]
        return Sample(
            {
                str(name): TopicPoint(*map(int, values))
                for name, values in content.get("t", {}).items()
                if only.topic in (None, name)
            },
            {
                str(name): GroupPoint(
                    {str(t): (int(done), int(lag)) for t, (done, lag) in topics.items() if only.reads in (None, t)}
                )
                for name, topics in content.get("g", {}).items()
                if only.group in (None, name)
            },
            {int(broker): int(size) for broker, size in content["b"].items()},
            int(content["s"]),
            {
                int(broker): {str(path): (int(total), int(usable)) for path, (total, usable) in dirs.items()}
                for broker, dirs in content.get("d", {}).items()  # earlier versions kept none
            },
            str(content.get("c", "")),
        )
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _part(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The first part, and what follows it. Raises ValueError, zlib.error."""
    stream = zlib.decompressobj()
    text = stream.decompress(data, _UNPACKED_MAX)
    if not stream.eof:
        raise ValueError("it is damaged, or longer than any sample")
    return dict(json.loads(text)), stream.unused_data
