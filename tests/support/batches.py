"""Record batches built and read with nothing of ours: struct, aiokafka's codecs and its record reader."""

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import crc32c
from aiokafka import codec as codecs
from aiokafka.record.default_records import DefaultRecordBatch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # with the time in it, no two replicas would be alike


def compressed(codec: int, body: bytes) -> bytes:
    """The body in that codec, as aiokafka writes it."""
    return bytes(_COMPRESS[codec](body))


_COMPRESS = {GZIP: _gzip, SNAPPY: codecs.snappy_encode, LZ4: codecs.lz4_encode, ZSTD: codecs.zstd_encode}


@dataclass(frozen=True)
class Rec:
    """One record as a test states it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 1_600_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """One batch as a test states it; `span` is last offset - base offset."""

    base: int
    span: int
    records: tuple[Rec, ...]
    codec: int = 0
    flags: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    epoch: int = 0
    base_timestamp: int | None = None
    max_timestamp: int | None = None

    @property
    def last(self) -> int:
        return self.base + self.span

    def encode(self) -> bytes:
        base_timestamp = self.base_timestamp
        if base_timestamp is None:
            base_timestamp = self.records[0].timestamp if self.records else 0
        latest = self.max_timestamp
        if latest is None:
            latest = max((r.timestamp for r in self.records), default=base_timestamp)
        body = b"".join(_record(r, r.offset - self.base, r.timestamp - base_timestamp) for r in self.records)
        if self.codec and self.records:
            body = _COMPRESS[self.codec](body)
        after_crc = struct.pack(
            ">hiqqqhii",
            self.flags | self.codec,
            self.span,
            base_timestamp,
            latest,
            self.producer_id,
            self.producer_epoch,
            self.sequence,
            len(self.records),
        )
        after_crc += body
        crc = crc32c.crc32c(after_crc)
        return struct.pack(">qiibI", self.base, 9 + len(after_crc), self.epoch, 2, crc) + after_crc


def batch(records: Sequence[Rec], **fields: Any) -> Batch:
    """Return a dense batch of these records."""
    return Batch(records[0].offset, records[-1].offset - records[0].offset, tuple(records), **fields)


def marker(
    offset: int, producer_id: int, *, commit: bool, producer_epoch: int = 0, timestamp: int = 1_600_000_000_000
) -> Batch:
    """Return a transaction marker."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    record = Rec(offset, key, struct.pack(">hi", 0, 0), timestamp)
    return batch([record], flags=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=producer_epoch)


@dataclass
class Seen:
    """A batch as aiokafka reads it back."""

    base: int
    last: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    sequence: int
    size: int
    crc_ok: bool
    records: list[Rec] = field(default_factory=list)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def read_back(data: bytes) -> list[Seen]:
    """Read every batch of a log; asserts that they fill it."""
    return list(_iter(data))


def headers_of(data: bytes) -> list[Seen]:
    """Read every batch's header; the records may be damaged."""
    return list(_iter(data, open_records=False))


def records_of(data: bytes) -> list[Rec]:
    """Read every data record of a log."""
    return [r for b in read_back(data) if not b.is_control for r in b.records]


def _iter(data: bytes, *, open_records: bool = True) -> Iterator[Seen]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        raw = bytearray(data[at : at + size])
        assert len(raw) == size or not open_records, "the log ends inside a batch"
        if len(raw) < 61:
            return
        attributes, span, base_ts, max_ts, pid, pepoch, seq, count = struct.unpack_from(">hiqqqhii", raw, 21)
        base = int.from_bytes(raw[:8], "big")
        crc_ok = crc32c.crc32c(raw[21:]) == int.from_bytes(raw[17:21], "big")
        seen = Seen(base, base + span, attributes, base_ts, max_ts, pid, pepoch, seq, size, crc_ok)
        if count and open_records:
            reader = DefaultRecordBatch(raw)
            seen.records = [Rec(r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in reader]
            assert len(seen.records) == count
        yield seen
        at += size


def _record(record: Rec, offset_delta: int, timestamp_delta: int) -> bytes:
    body = b"\0" + _varint(timestamp_delta) + _varint(offset_delta) + _bytes(record.key) + _bytes(record.value)
    body += _varint(len(record.headers))
    for key, value in record.headers:
        body += _bytes(key.encode()) + _bytes(value)
    return _varint(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    value = value << 1 if value >= 0 else ((-value) << 1) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])
