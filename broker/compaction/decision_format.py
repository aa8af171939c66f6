"""The decision of one compaction run for a partition, and its bytes.

A decision names offsets, so it fits every replica, whatever the boundaries of its segments.
"""

import base64
import hashlib
import json
from dataclasses import dataclass, field

from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.errors import CorruptData

_MAGIC = b"LYCD\x01"
# The largest decision that a broker keeps (docs/leases.md, `decision.bytes`).
KEPT_BYTES_MAX = 1 << 20


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
        return self.now_ms + self.delete_retention_ms

    def encode(self) -> bytes:
        """Return the decision as bytes; equal decisions give equal bytes."""
        sets = [s.encode() for s in (self.survivors, self.stamped, self.kept_batches)]
        head = json.dumps({**self._plain(), "sets": [len(s) for s in sets]}, sort_keys=True).encode()
        return b"".join([_MAGIC, len(head).to_bytes(4, "big"), head, *sets])

    @classmethod
    def decode(cls, data: bytes) -> "Decision":
        """Parse what `encode` wrote; raises CorruptData."""
        if data[:5] != _MAGIC:
            raise CorruptData("compaction decision: it does not start with LYCD 1")
        end = 9 + int.from_bytes(data[5:9], "big")
        try:
            head = json.loads(data[9:end])
            lengths = head.pop("sets")
            sets = []
            for length in lengths:
                sets.append(OffsetSet.decode(data[end : end + length]))
                end += length
            return cls(**head, survivors=sets[0], stamped=sets[1], kept_batches=sets[2])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CorruptData(f"compaction decision: {error}") from error

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
