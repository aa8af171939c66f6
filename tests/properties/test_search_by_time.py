"""The search by time, which looks at few fields of most batches, against one that parses every header and record."""

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from logyard.broker.errors import ApiError, CorruptData
from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.segment import index_builder, scan, timestamps
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records import batch, legacy
from logyard.broker.records.batch import Record, TimestampType
from tests.support.batches import Rec
from tests.support.old_logs import OldBatch

NOW = 1_700_000_000_000
STRANGE = ((b"\xff".decode(errors="surrogateescape"), b"v"),)  # a header's name that C refuses
Found = tuple[int, int] | None
DAMAGED, NOT_NOW = (-1, -1), (-1, -2)


def some_batch(rng: random.Random, offset: int) -> tuple[bytes, int]:
    """A batch from that offset on, and the offset behind it."""
    kind = rng.choice(["plain"] * 6 + ["packed", "stamped", "strange", "old", "wrapper", "emptied", "large"])
    count = rng.choice([1, 2, 10, timestamps.LITTLE_RECORDS, timestamps.LITTLE_RECORDS + 1])
    times = [NOW + offset + rng.randrange(-40, 40) for _ in range(count)]
    if kind in ("old", "wrapper"):
        codec = 0 if kind == "old" else 1
        recs = [Rec(offset + n, timestamp=times[n], key=None, value=b"v") for n in range(count if codec else 1)]
        return OldBatch(rng.randrange(2), tuple(recs), codec).encode(), offset + len(recs)
    size = 9000 if kind == "large" and count < 3 else rng.randrange(40)
    records = [
        Record(offset + n, times[n], None, bytes(size), STRANGE if kind == "strange" else ()) for n in range(count)
    ]
    made = batch.build(
        [] if kind == "emptied" else records,
        base_offset=offset,
        compression=1 if kind == "packed" else 0,
        log_append_time_ms=NOW + offset if kind == "stamped" else None,
        last_offset=offset + count - 1,
    )
    return bytes(made), offset + count


def reference(data: bytes, timestamp: int, log_start: int) -> Found:
    """The first record at or above `log_start` that is not older, by everything that can be read."""
    for at, header in scan.headers(lambda size, position: data[position : position + size], 0, len(data)):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        if header.magic == 2 and header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return header.max_timestamp, max(header.base_offset, log_start)
        whole = data[at : at + header.length]
        for record in batch.iter_records(whole) if header.magic == 2 else legacy.iter_legacy(whole):
            if record.timestamp >= timestamp and record.offset >= log_start:
                return record.timestamp, record.offset
    return None


def segment_of(data: bytes) -> Segment:
    """A segment of these bytes with its indexes."""
    disk = MemoryDisk()
    disk.make_directory("/data")
    segment = Segment(disk, "/data", 0)
    segment.file = disk.open(segment.path(layout.LOG), create=True, write=True)
    segment.file.write_at(data, 0)
    segment.size = len(data)
    return segment


def questions(rng: random.Random, last: int) -> Sequence[tuple[int, int]]:
    return [(NOW + rng.randrange(-60, last + 60), rng.choice([0, 0, rng.randrange(last + 1)])) for _ in range(40)]


def outcome(search: Callable[[], Found]) -> Found:
    try:
        return search()
    except (CorruptData, ApiError):  # ApiError: an unknown codec
        return DAMAGED
    except scan.NotCached:
        return NOT_NOW


@pytest.mark.parametrize("seed", range(25))
def test_it_finds_what_is_found_by_parsing_everything(seed: int) -> None:
    rng = random.Random(seed)
    data, offset = b"", 0
    for _ in range(rng.choice([1, 3, 30])):
        made, offset = some_batch(rng, offset)
        data += made
    segment = segment_of(data)
    index_builder.load_reader(segment, rng.choice([1, 300, 4096]))
    for timestamp, log_start in questions(rng, offset):
        wanted = reference(data, timestamp, log_start)
        assert timestamps.first_in_segment(segment, timestamp, log_start) == wanted
        assert outcome(partial(timestamps.first_nowait, segment, timestamp, log_start)) in (wanted, NOT_NOW)


@pytest.mark.parametrize("seed", range(25))
def test_damaged_bytes_are_no_other_answer(seed: int) -> None:
    """Where parsing everything finds an answer, the search has the same. Where it meets damage, so does the search, or
    it has found a record before the damage, as Kafka does."""
    rng = random.Random(seed)
    data, offset = b"", 0
    for _ in range(3):
        made, offset = some_batch(rng, offset)
        data += made
    for _ in range(40):
        spoilt = bytearray(data)
        at = rng.randrange(len(data))
        spoilt[at] = rng.randrange(256)
        wrong = bytes(spoilt[: rng.choice([len(data), len(data), rng.randrange(1, len(data))])])
        segment = segment_of(wrong)
        segment.reset_indexes()  # empty: the search begins at the first batch
        for timestamp, log_start in questions(rng, offset)[:5]:
            wanted = outcome(partial(reference, wrong, timestamp, log_start))
            found = outcome(partial(timestamps.first_in_segment, segment, timestamp, log_start))
            at_once = outcome(partial(timestamps.first_nowait, segment, timestamp, log_start))
            if wanted == DAMAGED and found != DAMAGED:
                assert found is not None
                assert found[0] >= timestamp
                assert found[1] >= log_start
            else:
                assert found == wanted
            assert at_once in (found, NOT_NOW, DAMAGED)
