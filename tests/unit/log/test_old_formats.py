"""A log of message formats v0 and v1, as a follower has it of an old leader: looked up by time, cut into segments."""

from tests.support.batches import Rec
from tests.support.logs import NOW, new_log
from tests.support.old_logs import OldBatch, old


def wrapper(n: int, **fields: int) -> OldBatch:
    return old([Rec(3 * n + i, b"k", b"v", NOW + 10 * n + 3 * i) for i in range(3)], **fields)


def test_the_first_record_that_is_not_older_lies_inside_a_wrapper() -> None:
    log = new_log()
    for n in range(5):
        log.append_as_follower(memoryview(wrapper(n).encode()))
    for n in range(5):
        for i in range(3):
            time = NOW + 10 * n + 3 * i
            assert log.timestamp_search(time)() == (time, 3 * n + i, -1)
    assert log.timestamp_search(NOW + 4)() == (NOW + 6, 2, -1)
    assert log.timestamp_search(NOW + 47)() is None


def test_log_append_time_is_that_of_the_first_record_of_a_wrapper() -> None:
    log = new_log()
    for n in range(3):
        log.append_as_follower(memoryview(wrapper(n, append_time=NOW + 100 * n).encode()))
    assert log.timestamp_search(NOW + 1)() == (NOW + 100, 3, -1)


def test_messages_without_a_time_are_not_found_by_one() -> None:
    log = new_log()
    log.append_as_follower(memoryview(wrapper(0, magic=0).encode()))
    assert log.timestamp_search(NOW)() is None
