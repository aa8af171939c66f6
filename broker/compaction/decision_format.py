"""The decision of one compaction run for a partition, and its bytes.

A decision names offsets, so it fits every replica, whatever the boundaries of its segments.
"""

import base64
import hashlib
import json
from dataclasses import dataclass, field, fields, replace

from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.config.topic import LONG_MAX
from logyard.broker.errors import CorruptData

_MAGIC = b"LYCD\x01"
# The largest decision that a broker keeps (docs/leases.md, `decision.bytes`).
KEPT_BYTES_MAX = 1 << 20
# Offsets of batches that begin before the range, or end behind it.
_OUTSIDE_MAX = 1 << 20
# The fields before the sets.
_PLAIN_FIELDS = 8


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of pass 1, and the input of pass 2 on every replica.

    Of the records in [range_start, range_end) those in `survivors` stay; records outside the range are unchanged.
    `stamped`: surviving tombstones, and surviving markers whose transaction is gone; a batch that holds one gets the
    delete horizon `now_ms + delete_retention_ms` unless it has one (KIP-534). `kept_batches`: last offsets of batches
    that stay although empty, for their producer's state.
    """

    topic: str
    partition: int
    leader_epoch: int
    range_start: int
    range_end: int
    now_ms: int
    delete_retention_ms: int
    tombstone_cutoff: int
    survivors: OffsetSet = field(default_factory=OffsetSet)
    stamped: OffsetSet = field(default_factory=OffsetSet)
    kept_batches: OffsetSet = field(default_factory=OffsetSet)

    @property
    def horizon_ms(self) -> int:
        """The time that stands in stamped batches; delete.retention.ms may be so large that it means for ever."""
        return min(self.now_ms + self.delete_retention_ms, LONG_MAX)

    def encode(self) -> bytes:
        """Return the decision as bytes; equal decisions give equal bytes."""
        sets = [s.encode() for s in (self.survivors, self.stamped, self.kept_batches)]
        head = json.dumps({**self._plain(), "sets": [len(s) for s in sets]}, sort_keys=True).encode()
        return b"".join([_MAGIC, len(head).to_bytes(4, "big"), head, *sets])

    @classmethod
    def decode(cls, data: bytes) -> "Decision":
        """Parse what `encode` wrote; raises CorruptData."""
        decision, at, lengths = _parsed(data)
        count_max = max(decision.range_end - decision.range_start, 0) + _OUTSIDE_MAX
        sets = []
        for length in lengths:
            sets.append(OffsetSet.decode(data[at : at + length], count_max))
            at += length
        return replace(decision, survivors=sets[0], stamped=sets[1], kept_batches=sets[2])

    @classmethod
    def decode_head(cls, data: bytes) -> "Decision":
        """Parse all but the sets, which stay empty: a few kilobytes may name a hundred million offsets.

        Raises CorruptData, also if the sets' lengths are not those of the rest.
        """
        return _parsed(data)[0]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()

    def summary(self) -> dict[str, int | str]:
        """Return the decision's fields in a commit, without its bytes (docs/leases.md)."""
        return {
            "sha256": self.sha256,
            "range_start": self.range_start,
            "range_end": self.range_end,
            "now_ms": self.now_ms,
            "tombstone_cutoff": self.tombstone_cutoff,
            "survivors": len(self.survivors),
        }

    def to_commit(self) -> dict[str, int | str]:
        """Return the summary, with the decision's bytes if it is small enough to be kept for absent replicas."""
        data = self.encode()
        if len(data) > KEPT_BYTES_MAX:
            return self.summary()
        return {**self.summary(), "bytes": base64.b64encode(data).decode()}

    def _plain(self) -> dict[str, int | str]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "leader_epoch": self.leader_epoch,
            "range_start": self.range_start,
            "range_end": self.range_end,
            "now_ms": self.now_ms,
            "delete_retention_ms": self.delete_retention_ms,
            "tombstone_cutoff": self.tombstone_cutoff,
        }


def _parsed(data: bytes) -> tuple[Decision, int, list[int]]:
    """Return a decision without its sets, where these begin, and their lengths; raises CorruptData."""
    if data[:5] != _MAGIC:
        raise CorruptData("compaction decision: it does not start with LYCD 1")
    end = 9 + int.from_bytes(data[5:9], "big")
    try:
        head = json.loads(data[9:end])
        lengths = head.pop("sets")
        decision = Decision(**head)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"compaction decision: {error}") from error
    for each in fields(Decision)[:_PLAIN_FIELDS]:
        if type(getattr(decision, each.name)) is not (str if each.name == "topic" else int):
            raise CorruptData(f"compaction decision: {each.name} is neither a number nor a name")
    if not isinstance(lengths, list) or len(lengths) != 3 or not all(type(n) is int and n >= 0 for n in lengths):
        raise CorruptData("compaction decision: three lengths are expected")
    if end + sum(lengths) != len(data):
        raise CorruptData(f"compaction decision: it has {len(data)} bytes, {end + sum(lengths)} are expected")
    return decision, end, lengths
