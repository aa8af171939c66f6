"""Logs of message formats v0 and v1, with v2 behind and between: written and read by aiokafka's code, not by ours."""

import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from tests.support.batches import Batch, Rec, batch

START_MS = 1_500_000_000_000
APPEND_TIME = 0x08
# aiokafka writes no lz4 of magic 0 (its descriptor's checksum is a wrong one, tests/reference has Kafka's own).
CODECS = {0: (0, 1, 2), 1: (0, 1, 2, 3)}


@dataclass(frozen=True)
class OldBatch:
    """A message of magic 0 or 1: one record, or a wrapper of some; `append_time` is the wrapper's LogAppendTime."""

    magic: int
    records: tuple[Rec, ...]
    codec: int = 0
    append_time: int | None = None
    flags: int = 0

    @property
    def base(self) -> int:
        return self.records[0].offset

    @property
    def last(self) -> int:
        return self.records[-1].offset

    def seen(self) -> list[Rec]:
        """The records as a consumer sees them."""
        time = -1 if self.magic == 0 else self.append_time
        return [r if time is None else replace(r, timestamp=time) for r in self.records]

    def encode(self) -> bytes:
        assert self.codec or len(self.records) == 1
        builder = LegacyRecordBatchBuilder(self.magic, self.codec, 1 << 30)
        start = self.base if self.magic == 1 and self.codec else 0
        for r in self.records:
            builder.append(r.offset - start, timestamp=r.timestamp, key=r.key, value=r.value)
        data = bytearray(builder.build())
        data[:8] = self.last.to_bytes(8, "big")
        if self.magic == 1:
            # What a broker does: a wrapper has the latest time inside, or the one when it came.
            latest = max(r.timestamp for r in self.records)
            data[17] |= 0 if self.append_time is None else APPEND_TIME
            data[18:26] = (latest if self.append_time is None else self.append_time).to_bytes(8, "big")
            data[12:16] = struct.pack(">I", zlib.crc32(data[16:]))
        return bytes(data)


AnyBatch = Batch | OldBatch


def old(records: Sequence[Rec], magic: int = 1, codec: int = 1, **fields: Any) -> OldBatch:
    """A wrapper of these records (or, without a codec, the message of one)."""
    return OldBatch(magic, tuple(records), codec, **fields)


def seen(batches: Sequence[AnyBatch]) -> list[Rec]:
    """The records of batches as a consumer sees them."""
    return [r for b in batches for r in (b.seen() if isinstance(b, OldBatch) else b.records)]


def random_old_log(rng: random.Random, batches: int) -> list[AnyBatch]:
    """Messages of all formats, v2 mostly behind; keys that meet, tombstones, records without a key, gaps in offsets."""
    log: list[AnyBatch] = []
    at = rng.randrange(3)
    for number in range(batches):
        magic = rng.choice([0, 1, 1, 2]) if number < batches * 2 // 3 else rng.choice([1, 2, 2])
        codec = rng.choice(CODECS.get(magic, (0, 1, 2, 3, 4)))
        records = []
        for _ in range(rng.randrange(1, 6) if codec or magic == 2 else 1):
            key = None if rng.random() < 0.05 else b"k%d" % rng.randrange(8)
            value = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(40))
            records.append(Rec(at, key, value, START_MS + at * 10 + rng.randrange(-5, 6)))
            at += rng.choice([1, 1, 1, 3])
        if magic == 2:
            log.append(batch(records, codec=codec))
        else:
            append_time = START_MS + at * 10 if magic == 1 and rng.random() < 0.3 else None
            log.append(OldBatch(magic, tuple(records), codec, append_time))
    return log


def read_any(data: bytes) -> list[Rec]:
    """Read every record of a log of any formats with aiokafka; asserts the checksums, and that batches fill the log."""
    found: list[Rec] = []
    at = 0
    while at < len(data):
        whole = data[at : at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")]
        magic = whole[16]
        part = DefaultRecordBatch(bytearray(whole)) if magic == 2 else LegacyRecordBatch(whole, magic)
        assert part.validate_crc()
        if magic < 2 or int.from_bytes(whole[57:61], "big"):
            found += [Rec(r.offset, r.key, r.value, -1 if r.timestamp is None else r.timestamp) for r in part]
        at += len(whole)
    assert at == len(data)
    return found


class Head(NamedTuple):
    """What a batch of any format says of itself at its front."""

    magic: int
    last: int
    codec: int
    max_timestamp: int
    size: int


def heads(data: bytes) -> list[Head]:
    """Read the front of each batch of a log."""
    out = []
    at = 0
    while at < len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        magic, attributes, delta, latest = data[at + 16], data[at + 17], 0, -1
        if magic == 1:
            (latest,) = struct.unpack_from(">q", data, at + 18)
        elif magic == 2:
            attributes, delta, _, latest = struct.unpack_from(">hiqq", data, at + 21)
        out.append(Head(magic, offset + delta, attributes & 7, latest, 12 + length))
        at += 12 + length
    return out


def sizes(data: bytes) -> list[tuple[int, int, int]]:
    """Magic, last offset and codec of each batch of a log."""
    return [head[:3] for head in heads(data)]
