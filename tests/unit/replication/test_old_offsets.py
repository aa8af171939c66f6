"""ListOffsets v0: offsets before a time, from the segments."""

import pytest

from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.replication.events import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from logyard.broker.replication.old_offsets import bounds_of, offsets_before
from tests.support.logs import NOW, new_log, produced


@pytest.fixture
def log() -> PartitionLog:
    """Segments at 0, 2 and 4, last written at 10, 20 and 30 ms; it ends at 6 and begins at 1."""
    made = new_log(MemoryDisk())
    for number in range(3):
        if number:
            made.roll(2 * number, NOW)
        made.append_as_leader(produced([b"v"] * 2), 0, now_ms=NOW)
    made.set_high_watermark(6)
    made.advance_log_start(1)
    for number, segment in enumerate(made.segments, start=1):
        made.disk.set_mtime(segment.path(layout.LOG), 10 * number)
    return made


@pytest.mark.parametrize(
    ("timestamp", "most", "found"),
    [
        (LATEST_TIMESTAMP, 10, (6, 4, 2, 1)),
        (LATEST_TIMESTAMP, 2, (6, 4)),
        (LATEST_TIMESTAMP, 0, ()),
        (LATEST_TIMESTAMP, -1, ()),
        (EARLIEST_TIMESTAMP, 10, (1,)),
        (9, 10, ()),
        (10, 10, (1,)),
        (29, 10, (2, 1)),
        (99, 10, (4, 2, 1)),
        (99, 1, (4,)),
        (100, 10, (6, 4, 2, 1)),
        (-3, 10, ()),
    ],
)
def test_the_newest_of_those_before_a_time(
    log: PartitionLog, timestamp: int, most: int, found: tuple[int, ...]
) -> None:
    assert offsets_before(bounds_of(log, log.log_end_offset, now_ms=100), timestamp, most) == found


def test_a_consumer_is_told_of_nothing_above_what_it_can_read(log: PartitionLog) -> None:
    """As in Kafka, where it reads to comes in the place of what is above."""
    assert offsets_before(bounds_of(log, 3, now_ms=100), LATEST_TIMESTAMP, 10) == (3, 2, 1)
    assert offsets_before(bounds_of(log, 3, now_ms=100), LATEST_TIMESTAMP, 1) == (3,)


def test_an_empty_last_segment_begins_at_the_log_s_end(log: PartitionLog) -> None:
    log.roll(6, NOW)
    assert offsets_before(bounds_of(log, 6, now_ms=100), LATEST_TIMESTAMP, 2) == (6, 4)
