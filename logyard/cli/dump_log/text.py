"""The output of kafka-dump-log for a partition's files, line for line; a dump also counts faults.

A log is read one batch at a time, and not mapped: a process that has mapped a file dies where another one cuts it.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from logyard.broker.errors import ApiError, CorruptData
from logyard.broker.log import checkpoints
from logyard.broker.log.producers import decode_snapshot
from logyard.broker.log.segment.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, decode_aborted
from logyard.broker.records import batch, compression, legacy
from logyard.broker.records.header import HEADER_SIZE, LOG_OVERHEAD, SEQUENCE_MAX, BatchHeader, TimestampType

_TIMES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
_MARKERS = {batch.ABORT: "ABORT", batch.COMMIT: "COMMIT"}
_CONTROLS = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}
_LENGTH_AT = 8
_LENGTH_MIN = 14  # the size of the smallest possible message


Decode = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]
"""(offset, key, value) → the texts for key and value; raises ValueError if they cannot be such a record."""


@dataclass(frozen=True, slots=True)
class Detail:
    """How much of a log is shown. `decode`: as an internal topic's records. `max_bytes` None: all of it."""

    records: bool = False
    contents: bool = False
    skip_metadata: bool = False
    decode: Decode | None = None
    max_bytes: int | None = None


@dataclass
class Faults:
    """Faults that Kafka's tool prints at the end, and the number of faults that it prints as it meets them.

    `notes` are printed at the end too and are not faults: an index in use that has no entry yet is all zeros.
    """

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    told: int = 0

    def __bool__(self) -> bool:
        return bool(self.lines or self.told)


def dump_log(path: Path, detail: Detail, faults: Faults) -> Iterator[str]:
    """The batches of a .log, and their records. Raises CorruptData where no batch can begin."""
    yield f"Log starting offset: {base_offset(path)}"
    gaps: list[str] = []
    last = -1
    with LogFile(path) as log:
        end = log.size if detail.max_bytes is None else min(log.size, detail.max_bytes)
        valid = 0
        for position, header in log.batches(0, end):
            data = log.part(position, header.length)
            yield _batch_line(data, position, header, faults)
            valid = position + header.length
            for record, extra in _records(data, header) if detail.records or detail.contents else ():
                if last not in (-1, record.offset - 1):
                    gaps.append(f"  {last} is followed by {record.offset}")
                last = record.offset
                yield _record_line(record, header, extra, detail)
        if end > valid and detail.max_bytes is None:
            faults.told += 1
            yield f"Found {end - valid} invalid bytes at the end of {path.name}"
    if gaps:
        faults.lines += [f"Non-consecutive offsets in {path.absolute()}", *reversed(gaps)]


class LogFile:
    """A .log that is read in parts. `size`: as it was when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._file.close()

    def part(self, position: int, size: int) -> memoryview:
        """Return bytes that the file had when it was opened. Raises CorruptData if it has been cut since."""
        try:
            data = os.pread(self._file.fileno(), size, position)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, str(self._path)) from None
        if len(data) < size:
            raise CorruptData(f"{self._path} was cut to {position + len(data)} bytes or less while it was read")
        return memoryview(data)

    def batches(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every whole batch. Raises CorruptData for a length that no batch can have, and for a
        codec that does not exist."""
        while position + LOG_OVERHEAD + _LENGTH_MIN <= end:
            head = self.part(position, min(HEADER_SIZE, end - position))
            length = int.from_bytes(head[_LENGTH_AT:LOG_OVERHEAD], "big", signed=True)
            if length < _LENGTH_MIN:
                raise CorruptData(
                    f"Found record size {length} smaller than minimum record overhead ({_LENGTH_MIN}) "
                    f"at position {position} of {self._path}"
                )
            if position + LOG_OVERHEAD + length > end:
                return
            try:
                header = batch.parse_header(head)
                compression.name(header.compression)
            except (ApiError, CorruptData) as problem:
                raise CorruptData(f"{self._path} from position {position} on: {problem}") from None
            yield position, header
            position += header.length


def _batch_line(data: memoryview, position: int, header: BatchHeader, faults: Faults) -> str:
    is_valid = batch.crc_matches(data, 0, header)
    faults.told += not is_valid
    if header.magic >= 2:
        horizon = "OptionalLong.empty" if header.delete_horizon is None else f"OptionalLong[{header.delete_horizon}]"
        head = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} isTransactional: {_java(header.is_transactional)} "
            f"isControl: {_java(header.is_control)} deleteHorizonMs: {horizon}"
        )
    else:
        head = f"offset: {header.last_offset}"
    return (
        f"{head} position: {position} {_time_type(header)}: {header.max_timestamp} size: {header.length} "
        f"magic: {header.magic} compresscodec: {compression.name(header.compression)} crc: {header.crc} "
        f"isvalid: {_java(is_valid)}"
    )


def _records(data: memoryview, header: BatchHeader) -> Iterator[tuple[batch.Record, str]]:
    """The records of a batch, each with the text that follows offset, time and sizes."""
    if header.magic < 2:
        yield from _messages(data, header)
        return
    for record in batch.records(data):
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence + record.offset - header.base_offset) & SEQUENCE_MAX
        extra = f" sequence: {sequence} headerKeys: [{','.join(key for key, _ in record.headers)}]"
        if header.is_control:
            extra += _marker(record)
        yield record, extra


def _messages(view: memoryview, header: BatchHeader) -> Iterator[tuple[batch.Record, str]]:
    found = legacy.legacy_records(view)
    crcs = [header.crc]
    if header.compression != compression.NONE:
        [wrapper] = legacy.messages(view)
        inner = compression.decompress(header.compression, wrapper.value or b"")
        crcs = [message.header.crc for message in legacy.messages(memoryview(inner))]
    for record, crc in zip(found, crcs, strict=True):
        yield record, f" isValid: true crc: {crc}}}"  # Kafka's tool prints this brace


def _marker(record: batch.Record) -> str:
    kind = batch.control_type(record)
    if kind in _MARKERS:
        return f" endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {batch.control_marker(record).coordinator_epoch}"
    return f" controlType: {_CONTROLS.get(kind, 'UNKNOWN')}({kind})"


def _record_line(record: batch.Record, header: BatchHeader, extra: str, detail: Detail) -> str:
    line, prefix = "", "| "
    if not detail.skip_metadata:
        prefix = " "
        line = (
            f"| offset: {record.offset} {_time_type(header)}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)}{extra}"
        )
    if detail.contents and not header.is_control:
        key, payload = _shown(record, detail)
        line += "" if key is None else f"{prefix}key: {key}"
        line += "" if payload is None else f" payload: {payload}"
    return line


def _shown(record: batch.Record, detail: Detail) -> tuple[str | None, str | None]:
    if detail.decode is not None:
        try:
            return detail.decode(record.offset, record.key, record.value)
        except ValueError as problem:
            raise CorruptData(str(problem)) from None
    key, value = (None if data is None else data.decode("utf-8", "replace") for data in (record.key, record.value))
    return key, value


# -- indexes -------------------------------------------------------------------------------------------


def dump_index(path: Path, faults: Faults, *, sanity_only: bool, verify_only: bool) -> Iterator[str]:
    """The entries of an .index, each compared with the batch in the .log beside it."""
    entries = offset_entries(path)
    if not entries:
        yield f"{path} is empty."
        return
    if sanity_only:
        _check_sanity(path, OFFSET_ENTRY_SIZE, entries[-1][0])
        yield f"{path} passed sanity check."
        return
    wrong: list[str] = []
    with LogFile(path.with_suffix(".log")) as log:
        for number, (offset, position) in enumerate(entries):
            if offset == base_offset(path) and number > 0:
                break
            found = next(log.batches(position, log.size), None)
            last = found[1].last_offset if found is not None else -1
            if last != offset:
                wrong.append(f"  Index offset: {offset}, log offset: {last}")
            if not verify_only:
                yield f"offset: {offset} position: {position}"
    if wrong:
        is_blank = all(entry == (base_offset(path), 0) for entry in entries)
        (faults.notes if is_blank else faults.lines).extend([f"Mismatches in :{path.absolute()}", *reversed(wrong)])


def dump_time_index(path: Path, faults: Faults, *, sanity_only: bool, verify_only: bool) -> Iterator[str]:
    """The entries of a .timeindex, each compared with the batch in the .log beside it."""
    entries = time_entries(path)
    if sanity_only:
        _check_sanity(path, TIME_ENTRY_SIZE, entries[-1][1] if entries else base_offset(path))
        yield f"{path} passed sanity check."
        return
    indexed = offset_entries(path.with_suffix(".index"))
    positions = [entry for number, entry in enumerate(indexed) if not (number and entry[0] == base_offset(path))]
    mismatched: list[str] = []
    unordered: list[str] = []
    missing: list[str] = []
    previous = -1
    with LogFile(path.with_suffix(".log")) as log:
        for number, (timestamp, offset) in enumerate(entries):
            if offset == base_offset(path) and number > 0:
                break
            place = _floor(positions, offset)
            found = next((b for b in log.batches(place, log.size) if b[1].last_offset >= offset), None)
            if found is None or found[1].last_offset != offset:
                last = found[1].last_offset if found is not None else -1
                missing.append(f"Indexed offset: {offset}, found log offset: {last}")
            else:
                position, header = found
                records = _records(log.part(position, header.length), header)
                latest = max((r.timestamp for r, _ in records), default=-1)
                if latest != timestamp:
                    mismatched.append(f"  Index timestamp: {timestamp}, log timestamp: {latest}")
                if previous >= timestamp:
                    unordered.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
            if not verify_only:
                yield f"timestamp: {timestamp} offset: {offset}"
            previous = timestamp
    for heading, lines in (
        (f"Found timestamp mismatch in :{path.absolute()}", mismatched),
        (f"Found out of order timestamp in :{path.absolute()}", unordered),
        ("The following indexed offsets are not found in the log.", missing),
    ):
        faults.lines += [heading, *lines] if lines else []


def _floor(entries: list[tuple[int, int]], offset: int) -> int:
    """The position from which a scan finds an offset."""
    found = bisect_right(entries, offset, key=lambda entry: entry[0])
    return entries[found - 1][1] if found else 0


def offset_entries(path: Path) -> list[tuple[int, int]]:
    """(offset, position) of every entry, the zeros that fill an index being written included."""
    data, base = path.read_bytes(), base_offset(path)
    whole = len(data) // OFFSET_ENTRY_SIZE * OFFSET_ENTRY_SIZE
    return [
        (base + int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big"))
        for at in range(0, whole, OFFSET_ENTRY_SIZE)
    ]


def time_entries(path: Path) -> list[tuple[int, int]]:
    """(timestamp, offset) of every entry, the zeros that fill an index being written included."""
    data, base = path.read_bytes(), base_offset(path)
    whole = len(data) // TIME_ENTRY_SIZE * TIME_ENTRY_SIZE
    return [
        (
            int.from_bytes(data[at : at + 8], "big", signed=True),
            base + int.from_bytes(data[at + 8 : at + 12], "big"),
        )
        for at in range(0, whole, TIME_ENTRY_SIZE)
    ]


def _check_sanity(path: Path, entry_size: int, last_offset: int) -> None:
    size = path.stat().st_size
    if size % entry_size:
        raise CorruptData(f"{path}: {size} bytes are not whole entries of {entry_size}")
    if last_offset < base_offset(path):
        raise CorruptData(f"{path}: its last offset {last_offset} is less than the base offset {base_offset(path)}")


# -- the small files -----------------------------------------------------------------------------------


def dump_transactions(path: Path) -> Iterator[str]:
    """The aborted transactions of a .txnindex."""
    for txn in decode_aborted(path.read_bytes()):
        yield (
            f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
            f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        )


def dump_snapshot(path: Path) -> Iterator[str]:
    """The producers of a .snapshot."""
    for entry in decode_snapshot(path.read_bytes()):
        first = "OptionalLong.empty" if entry.txn_first_offset < 0 else f"OptionalLong[{entry.txn_first_offset}]"
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {first} lastTimestamp: {entry.last_timestamp} "
        )
        if entry.batches:
            seen = entry.batches[0]
            line += (
                f"firstSequence: {seen.first_sequence} lastSequence: {seen.last_sequence} "
                f"lastOffset: {seen.last_offset} offsetDelta: {seen.offset_delta} timestamp: {seen.timestamp}"
            )
        yield line


def dump_checkpoint(path: Path) -> Iterator[str]:
    """The checkpoints of a partition and of a log directory, which Kafka's tool does not show."""
    data = path.read_bytes()
    if path.name == "leader-epoch-checkpoint":
        yield from (f"epoch: {one.epoch} startOffset: {one.start_offset}" for one in checkpoints.decode_epochs(data))
    elif path.name == "partition.metadata":
        yield from data.decode("utf-8", "replace").splitlines()
    else:
        yield from (
            f"topic: {tp.topic} partition: {tp.partition} offset: {offset}"
            for tp, offset in sorted(checkpoints.decode_offsets(data).items())
        )


def base_offset(path: Path) -> int:
    """The offset in a file's name. Raises CorruptData."""
    name = path.name.partition(".")[0]
    if not name.isdecimal():
        raise CorruptData(f"{path}: the name of such a file begins with an offset")
    return int(name)


def _time_type(header: BatchHeader) -> str:
    return "NoTimestampType" if header.magic == 0 else _TIMES[header.timestamp_type]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _java(value: bool) -> str:
    return "true" if value else "false"
