"""/consumers/G: what the first consumers keep in ZooKeeper.

`offsets/T/P` is a committed offset as decimal text, `ids/C` the registration of a consumer (ephemeral, JSON),
`owners/T/P` the stream of a consumer that reads the partition (ephemeral, text).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.znodes.fields import Fields
from logyard.broker.znodes.paths import CONSUMERS

PATH = CONSUMERS
OFFSETS, IDS, OWNERS = "offsets", "ids", "owners"

_NUMBER = re.compile(r"[+-]?\d{1,1000}")
_OFFSET_MIN, _OFFSET_MAX = -(2**63), 2**63 - 1
# As Kafka's client of ZooKeeper checks a path before it sends it. Characters outside the first plane are refused
# because Java sees them as two surrogates.
_REFUSED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Registration:
    """A consumer's subscription: streams by topic, or by a regular expression if the pattern is not `static`."""

    pattern: str
    subscription: Mapping[str, int]


def group_path(group: str) -> str:
    return f"{PATH}/{group}"


def part_path(group: str, part: str) -> str:
    """The path above all that a group has of one part: OFFSETS, IDS or OWNERS."""
    return f"{PATH}/{group}/{part}"


def topic_path(group: str, part: str, topic: str) -> str:
    """The path above the partitions of a topic, in OFFSETS or OWNERS."""
    return f"{PATH}/{group}/{part}/{topic}"


def partition_path(group: str, part: str, tp: TopicPartition) -> str:
    return f"{PATH}/{group}/{part}/{tp.topic}/{tp.partition}"


def consumer_path(group: str, consumer: str) -> str:
    return f"{PATH}/{group}/{IDS}/{consumer}"


def is_path(path: str) -> bool:
    """Whether ZooKeeper takes this as a path: a group may have any name, and its name is a part of paths."""
    names = path.split("/")[1:]
    return path.startswith("/") and not any(name in ("", ".", "..") for name in names) and not _REFUSED.search(path)


def encode_offset(offset: int) -> bytes:
    return str(offset).encode("ascii")


def decode_offset(data: bytes, path: str) -> int:
    """Return the offset, any signed 64-bit number, as Java reads one. Raises CorruptData."""
    text = data.decode("utf-8", "replace")
    if _NUMBER.fullmatch(text):
        offset = int(text)
        if _OFFSET_MIN <= offset <= _OFFSET_MAX:
            return offset
    raise CorruptData(f"znode {path}: an offset is expected, found {data[:40]!r}")


def decode_registration(data: bytes, path: str) -> Registration:
    """Raises CorruptData."""
    fields = Fields.parse(path, data)
    streams = fields.object("subscription")
    return Registration(fields.text("pattern"), {topic: streams.integer(topic) for topic in streams.names()})


def decode_owner(data: bytes) -> str:
    """Return the consumer that a partition belongs to; the znode holds `CONSUMER-STREAM`. Never raises."""
    text = data.decode("utf-8", "replace")
    return text.rpartition("-")[0] or text
