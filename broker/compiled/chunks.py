"""Chunks: a few MiB of whole batches, decoded from bytes to headers, checked batches and records.

A chunk is small enough to stay in the processor's cache from the checksum to the records. Messages of formats v0 and v1
are treated as batches (old_messages.py). Damage is returned as a value (`Damage`), so that a job can report it or stop.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from crc32c import crc32c

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.kernels import Array
from logyard.broker.compiled.old_messages import Faults, Payloads, opened_messages
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.records import compression, decompression_stream

CHUNK_BYTES = 4 * 1024 * 1024
# How many times larger compressed batches usually become; memory that is allocated but not used costs nothing.
RATIO_GUESS = 6
# How much of a chunk is decompressed at a time; one more batch may follow. Offsets into it have 32 bits in Arrow.
PART_BYTES = 64 << 20
_CODEC_MASK = 0x07
_CRC_START = 21
RECORD_SIZE_MIN = 7
WRONG_OFFSETS = "its offsets do not follow those before it, or are not its segment's"


class Damage(NamedTuple):
    """A damaged batch: its byte position in the file, the base offset in its header, and what is wrong."""

    position: int
    base_offset: int
    reason: str


class ByteSource(Protocol):
    """The bytes of one segment file."""

    size: int

    def read(self, position: int, size: int) -> Array:
        """Return `size` bytes from `position` as a uint8 array; fewer only at the end of the file."""
        ...


@dataclass(slots=True)
class Chunk:
    """Whole batches: their bytes, the file position of these, their headers, and their payloads once decompressed."""

    file_position: int
    data: Array
    headers: Array
    raw: Array | None = None
    payloads: Array | None = None
    # The payloads of messages before v2, by position in `data`.
    old_payloads: Payloads = field(default_factory=dict)
    old_faults: Faults = field(default_factory=dict)

    def batch(self, index: int) -> memoryview:
        """Return the bytes of one batch."""
        at = int(self.headers[index, k.POSITION])
        return memoryview(self.data)[at : at + int(self.headers[index, k.LENGTH])]

    def damage(self, index: int, reason: str) -> Damage:
        """Return the damage of one batch."""
        row = self.headers[index]
        return Damage(self.file_position + int(row[k.POSITION]), int(row[k.BASE_OFFSET]), reason)

    def select(self, mask: Array | slice) -> "Chunk":
        """Return the chunk with the batches of `mask` (bool per batch, or which rows) only."""
        payloads = None if self.payloads is None else self.payloads[mask]
        rest = self.old_payloads, self.old_faults
        return Chunk(self.file_position, self.data, self.headers[mask], self.raw, payloads, *rest)


def read_chunks(
    source: ByteSource,
    start: int = 0,
    end: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    *,
    opens_old: bool = True,
) -> Iterator[Chunk | Damage]:
    """Yield the batches of bytes [start, end) (which must be batch boundaries), chunk by chunk.

    Without `opens_old`, messages before v2 have only position, offset, length and magic. Bytes that cannot be a batch
    yield one Damage and end the iteration, since nothing after them can be framed.
    """
    stop = source.size if end is None else min(end, source.size)
    position = start
    want = chunk_bytes
    while position < stop:
        data = source.read(position, min(want, stop - position))
        count, used, fault = k.count_batches(data, len(data))
        if count:
            headers = np.zeros((count, k.HEADER_COLUMNS), np.int64)
            k.read_headers(data, headers)
            chunk = Chunk(position, data[:used], headers)
            if opens_old and (headers[:, k.MAGIC] != 2).any():
                chunk.old_payloads, chunk.old_faults, done = opened_messages(data, headers)
                if done < count:
                    used, fault = int(headers[done, k.POSITION]), 0
                    chunk.data, chunk.headers = data[:used], headers[:done]
            yield chunk
            position += used
            want = chunk_bytes
            if not fault:
                continue
            data = data[used:]
        if fault:
            yield Damage(position, _offset_at(data), k.FAULT_TEXT[k.FAULT_LENGTH])
            return
        needed = int.from_bytes(bytes(data[8:12]), "big", signed=True) + 12 if len(data) >= 17 else 17
        if needed > stop - position:
            yield Damage(position, _offset_at(data), f"the file ends inside it ({stop - position} bytes are left)")
            return
        want = needed


def _offset_at(data: Array) -> int:
    return int.from_bytes(bytes(data[:8]), "big", signed=True) if len(data) >= 8 else -1


def check_crcs(chunk: Chunk) -> list[Damage]:
    """Return the batches whose checksum is wrong, and messages before v2 that are damaged in any way."""
    damages = []
    view = memoryview(chunk.data)
    headers = chunk.headers
    columns = (headers[:, c].tolist() for c in (k.POSITION, k.LENGTH, k.CRC, k.MAGIC))
    for index, (at, length, crc, magic) in enumerate(zip(*columns, strict=True)):
        if magic != 2:
            if fault := chunk.old_faults.get(at):
                damages.append(chunk.damage(index, fault))
        elif crc32c(view[at + _CRC_START : at + length]) != crc:
            damages.append(chunk.damage(index, "its checksum (CRC-32C) is wrong"))
    return damages


def opened_parts(chunk: Chunk, wanted: Array | None = None) -> Iterator[tuple[Chunk, list[Damage]]]:
    """Yield a chunk's batches with `raw` and `payloads` filled, and those of them that do not decompress, in parts of
    about PART_BYTES: a few MiB of batches may become hundreds of GiB.

    :param wanted: which batches are decompressed (a mask), if not all; the others' payloads are empty.
    """
    rest, wanted = chunk, np.ones(len(chunk.headers), bool) if wanted is None else wanted
    while len(rest.headers):
        part = rest.select(slice(None))
        damages, done = _open(part, wanted)
        part.headers, rest, wanted = part.headers[:done], rest.select(slice(done, None)), wanted[done:]
        yield part, damages


def _open(chunk: Chunk, wanted: Array) -> tuple[list[Damage], int]:
    """Fill `raw` and `payloads`; returns the damaged batches, and how many batches were gone through."""
    headers = chunk.headers
    starts = headers[:, k.POSITION] + k.HEADER_SIZE
    ends = headers[:, k.POSITION] + headers[:, k.LENGTH]
    codecs = headers[:, k.ATTRIBUTES] & _CODEC_MASK
    damages: dict[int, Damage] = {}
    if codecs.any() or chunk.old_payloads:
        chunk.raw, chunk.payloads = _decompressed(chunk, starts, ends, codecs, wanted, damages)
    else:
        chunk.raw, chunk.payloads = chunk.data, np.stack([starts, np.where(wanted, ends, starts)], axis=1)
    done = len(chunk.payloads)
    sizes, counts = chunk.payloads[:, 1] - chunk.payloads[:, 0], headers[:done, k.COUNT]
    for index in np.flatnonzero(wanted[:done] & ((counts < 0) | (counts * RECORD_SIZE_MIN > sizes))).tolist():
        damages.setdefault(index, chunk.damage(index, f"its {int(counts[index])} records do not fit in it"))
    return [damages[index] for index in sorted(damages)], done


def _decompressed(
    chunk: Chunk,
    starts: Array,
    ends: Array,
    codecs: Array,
    wanted: Array,
    damages: dict[int, Damage],
) -> tuple[Array, Array]:
    view, old = memoryview(chunk.data), chunk.old_payloads
    room = _Room(RATIO_GUESS * len(view))
    bounds = np.zeros((len(codecs), 2), np.int64)
    columns = (codecs, starts, ends, wanted, chunk.headers[:, k.COUNT])
    for index, (codec, start, end, is_wanted, count) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        before = room.used
        try:
            if start - k.HEADER_SIZE in old:
                room.copy(memoryview(old[start - k.HEADER_SIZE] if is_wanted else b""))
            elif codec and is_wanted and count > 0:
                room.decompress(codec, view[start:end])
            elif is_wanted:
                room.copy(view[start:end])
        except LogyardError as error:
            damages[index] = chunk.damage(index, f"it does not decompress: {error}")
        bounds[index] = before, room.used
        if room.used >= PART_BYTES:
            bounds = bounds[: index + 1]
            break
    return room.data[: room.used], bounds


class _Room:
    """An array of bytes that grows by doubling."""

    def __init__(self, size: int) -> None:
        self.data: Array = np.empty(max(size, 1 << 16), np.uint8)
        self.used = 0

    def copy(self, piece: memoryview) -> None:
        while len(self.data) - self.used < len(piece):
            self._grow()
        self.data[self.used : self.used + len(piece)] = np.frombuffer(piece, np.uint8)
        self.used += len(piece)

    def decompress(self, codec: int, piece: memoryview) -> None:
        """Append decompressed bytes; raises CorruptData, also if they are more than a batch may have."""
        most = compression.DECOMPRESSED_BYTES_MAX
        try:
            while (
                size := compression.decompress_into(codec, piece, memoryview(self.data)[self.used :][:most])
            ) is None:
                if len(self.data) - self.used >= most:
                    raise CorruptData(f"it decompresses to more than {most} bytes")
                self._grow()
        except compression.BrokenStream:
            self.copy(memoryview(decompression_stream.whole(codec, piece)))
        else:
            self.used += size

    def _grow(self) -> None:
        larger = np.empty(2 * len(self.data), np.uint8)
        larger[: self.used] = self.data[: self.used]
        self.data = larger


def walk(chunk: Chunk, where: str = "") -> Array:
    """Return the record matrix (kernels.RECORD_COLUMNS) of a decompressed chunk; raises CorruptBatch at the first
    damaged batch, naming `where`."""
    assert chunk.raw is not None, "opened_parts comes first"
    records = np.empty((int(chunk.headers[:, k.COUNT].sum()), k.RECORD_COLUMNS), np.int64)
    damaged, fault = k.walk_records(chunk.raw, chunk.payloads, chunk.headers, records)
    if damaged >= 0:
        raise CorruptBatch(chunk.damage(damaged, k.FAULT_TEXT[fault]), where)
    return records


class CorruptBatch(CorruptData):
    """A batch that cannot be read; `damage` says which and why."""

    def __init__(self, damage: Damage, where: str = "") -> None:
        place = f"{where}: " if where else ""
        super().__init__(f"{place}batch at position {damage.position} (offset {damage.base_offset}): {damage.reason}")
        self.damage = damage


def trusted_chunks(
    source: ByteSource, where: str, first: int = 0, last: int | None = None, after: int = -1
) -> Iterator[Chunk]:
    """Yield the chunks of a segment; raises CorruptBatch, naming `where`, at bytes that cannot be a batch, and at
    offsets that do not ascend: no checksum covers the base offset.

    :param first: the segment's base offset; messages before v2 may begin below it, in logs of old followers.
    :param last: its last offset, where it is known.
    :param after: the last offset before its first batch.
    """
    for chunk in read_chunks(source):
        if isinstance(chunk, Damage):
            raise CorruptBatch(chunk, where)
        starts = chunk.headers[:, k.BASE_OFFSET]
        ends = starts + chunk.headers[:, k.LAST_DELTA]
        low = np.where(chunk.headers[:, k.MAGIC] == 2, first, 0)
        wrong = (starts <= np.concatenate([[after], ends[:-1]])) | (starts < low) | (ends < starts)
        if last is not None:
            wrong |= ends > last
        if wrong.any():
            for damage in check_crcs(chunk):
                raise CorruptBatch(damage, where)
            raise CorruptBatch(chunk.damage(int(np.argmax(wrong)), WRONG_OFFSETS), where)
        after = int(ends[-1])
        yield chunk


def trusted_parts(chunk: Chunk, where: str) -> Iterator[Chunk]:
    """Check a chunk and yield it decompressed in parts; raises CorruptBatch naming the file at the first damage."""
    for damage in check_crcs(chunk):
        raise CorruptBatch(damage, where)
    yield from checked_parts(chunk, where)


def checked_parts(chunk: Chunk, where: str, wanted: Array | None = None) -> Iterator[Chunk]:
    """Yield a chunk whose checksums have been checked, decompressed in parts, or the `wanted` batches of it; raises
    CorruptBatch naming the file."""
    for part, damages in opened_parts(chunk, wanted):
        for damage in damages:
            raise CorruptBatch(damage, where)
        yield part


class AbortedSpans:
    """Aborted transactions by producer: a look at a batch costs as much for a hundred thousand of them as for a few."""

    def __init__(self, aborted: Iterable[tuple[int, int, int]]) -> None:
        """:param aborted: (producer id, first offset, offset of the abort marker)."""
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        for producer, first, last in sorted(aborted):
            lasts = self._lasts.setdefault(producer, [])
            self._firsts.setdefault(producer, []).append(first)
            lasts.append(max(last, lasts[-1]) if lasts else last)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def cover(self, producer: int, offset: int) -> bool:
        """Whether an offset is in an aborted transaction of this producer."""
        at = bisect_right(self._firsts.get(producer, ()), offset) - 1
        return at >= 0 and offset <= self._lasts[producer][at]


def visible(headers: Array, aborted: AbortedSpans, *, committed_only: bool) -> Array:
    """Return a mask of the batches that a consumer sees: no control batches; with `committed_only` no aborted data
    either."""
    mask: Array = headers[:, k.ATTRIBUTES] & 0x20 == 0
    if committed_only and aborted:
        rows = np.flatnonzero(mask & (headers[:, k.ATTRIBUTES] & 0x10 != 0))
        columns = (headers[rows, c].tolist() for c in (k.PRODUCER_ID, k.BASE_OFFSET))
        hidden = [aborted.cover(producer, offset) for producer, offset in zip(*columns, strict=True)]
        mask[rows[np.array(hidden, bool)]] = False
    return mask
