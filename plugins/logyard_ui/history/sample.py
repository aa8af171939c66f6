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
TOPICS_MAX, GROUPS_MAX, READ_MAX = 500, 300, 50
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

    A topic of which a partition did not answer is left out: with it missing, its sums would jump.
    """

    topics: Mapping[str, TopicPoint] = field(default_factory=dict)
    groups: Mapping[str, GroupPoint] = field(default_factory=dict)
    brokers: Mapping[int, int] = field(default_factory=dict)
    bytes: int = 0

    def bounded(self) -> "Sample":
        """Without the smaller topics and groups, where there are too many."""
        topics = sorted(self.topics, key=lambda name: (-self.topics[name].bytes, name))[:TOPICS_MAX]
        groups = sorted(self.groups, key=lambda name: (-self.groups[name].lag, name))[:GROUPS_MAX]
        return Sample(
            {name: self.topics[name] for name in topics},
            {name: GroupPoint(dict(sorted(self.groups[name].topics.items())[:READ_MAX])) for name in groups},
            self.brokers,
            self.bytes,
        )


def pack(sample: Sample) -> bytes:
    kept = sample.bounded()
    content = {
        "t": {name: [p.end, p.records, p.leader_bytes, p.bytes] for name, p in kept.topics.items()},
        "g": {name: {topic: list(pair) for topic, pair in p.topics.items()} for name, p in kept.groups.items()},
        "b": {str(broker): size for broker, size in kept.brokers.items()},
        "s": kept.bytes,
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 6)


def unpack(data: bytes) -> Sample | None:
    """None where the bytes are no sample: of a later version, or damaged."""
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(data, _UNPACKED_MAX)
        if not stream.eof:
            return None
        content: dict[str, Any] = json.loads(text)
        return Sample(
            {str(name): TopicPoint(*map(int, values)) for name, values in content["t"].items()},
            {
                str(name): GroupPoint({str(topic): (int(done), int(lag)) for topic, (done, lag) in topics.items()})
                for name, topics in content["g"].items()
            },
            {int(broker): int(size) for broker, size in content["b"].items()},
            int(content["s"]),
        )
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return None
