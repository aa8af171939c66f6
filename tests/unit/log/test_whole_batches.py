"""Reads for copies of a log: whole batches where these are large."""

import itertools

import pytest

from logyard.broker.errors import StorageError
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from tests.support.logs import NOW, content, fill, new_log, produced

LARGE = 64 * 1024
"""From so many bytes on the batches of a copy are looked at."""


def fill_large(log: PartitionLog, count: int) -> int:
    """Append `count` batches of one large record each; returns a batch's size."""
    for _ in range(count):
        log.append_as_leader(produced([b"v" * LARGE]), 0, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    return log.segments.active.size // count


@pytest.mark.parametrize("is_cold", [False, True])
def test_copies_get_whole_batches_where_these_are_large(is_cold: bool) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    one = fill_large(log, 40)
    all_of_them = content(log)
    disk.cold = is_cold

    def found(start: int, most: int, limit: int = 40, min_one: bool = True) -> bytes:
        return bytes(log.read(start, most, limit_offset=limit, min_one=min_one, whole=True).load())

    for whole, more in itertools.product((1, 2, 3, 15), (0, 1, one - 1)):
        most = whole * one + more
        assert found(0, most) == all_of_them[: whole * one]
        assert found(20, most) == all_of_them[20 * one :][: whole * one]
    assert found(0, one * 3 + 1, limit=2) == all_of_them[: one * 2], "the limit is nearer"
    assert found(0, one - 1) == all_of_them[:one], "the first one comes whole"
    assert found(0, one - 1, min_one=False) == b""
    assert found(35, one * 50) == all_of_them[35 * one :], "the log's end is nearer"
    assert found(0, one * 20 + 1) == all_of_them[: one * 20 + 1], "so many are not looked at"


def test_small_batches_behind_a_large_one_are_not_looked_at() -> None:
    log = new_log()
    most = fill_large(log, 1) + 3_001
    fill(log, 200)
    assert log.read(0, most, limit_offset=log.log_end_offset, min_one=True, whole=True).size == most


def test_damage_is_told_to_whom_has_come_there() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    one = fill_large(log, 10)
    disk.open(log.segments.active.path(".log"), write=True).write_at(b"\xff" * 8, one * 2 + 8)
    assert log.read(0, one * 5, limit_offset=10, min_one=True, whole=True).size == one * 2
    with pytest.raises(StorageError):
        log.read(2, one * 5, limit_offset=10, min_one=True, whole=True).load()
