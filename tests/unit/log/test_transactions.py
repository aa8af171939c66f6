"""What a log makes of transactions: the last stable offset, the index of aborted ones, and what outlives what."""

import errno
from typing import Any

import pytest

from logyard.broker.errors import StorageError
from logyard.broker.log.disk.memory import MemoryDisk, MemoryFile
from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.log.segment import creation
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records import batch
from logyard.broker.records.decode import ABORT, COMMIT
from tests.support.logs import NOW, SMALL, content, fill, marker, new_log, opened, produced, transactional


def append(log: PartitionLog, producer_id: int, sequence: int = 0, count: int = 1, epoch: int = 0) -> int:
    """A batch in a transaction; returns its first offset."""
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return log.append_as_leader(produced([b"x"] * count, transactional=True, **fields), 0, now_ms=NOW).first_offset


def end(log: PartitionLog, producer_id: int, kind: int = COMMIT, epoch: int = 0, **fields: Any) -> int:
    """A marker; returns its offset."""
    data = marker(kind, producer_id=producer_id, producer_epoch=epoch)
    return log.append_as_leader(data, 0, now_ms=fields.get("now_ms", NOW), origin=Origin.COORDINATOR).first_offset


def replicate(log: PartitionLog) -> None:
    log.set_high_watermark(log.log_end_offset)


def aborted(log: PartitionLog, start: int = 0) -> list[tuple[int, ...]]:
    return [tuple(entry) for entry in log.aborted_transactions(start, log.log_end_offset)]


def test_data_outside_of_transactions_is_stable_at_once() -> None:
    log = new_log()
    fill(log, 2)
    assert (log.producers.first_unstable_offset, log.last_stable_offset) == (None, 4)


def test_the_oldest_open_transaction_is_the_first_unstable_offset() -> None:
    log = new_log()
    first = [append(log, pid) for pid in (1, 2, 3)]
    append(log, 1, 1)
    replicate(log)
    assert log.last_stable_offset == first[0]
    end(log, 2)
    replicate(log)
    assert log.last_stable_offset == first[0]
    end(log, 1, ABORT)
    assert log.last_stable_offset == first[0]
    replicate(log)
    assert log.last_stable_offset == first[2]
    end(log, 3)
    replicate(log)
    assert log.last_stable_offset == log.log_end_offset


def test_each_aborted_transaction_is_in_the_index_on_the_leader_and_its_followers() -> None:
    leader, follower = new_log(), new_log()
    append(leader, 1, count=5)
    append(leader, 2, count=10)
    fill(leader, 1)
    end(leader, 1)
    append(leader, 3, count=2)
    end(leader, 2, ABORT)
    append(leader, 4)
    end(leader, 3, ABORT)
    end(leader, 4)
    assert aborted(leader) == [(2, 5, 20, 18), (3, 18, 22, 21)]
    follower.append_as_follower(memoryview(bytearray(content(leader))))
    assert aborted(follower) == aborted(leader)
    replicate(follower)
    assert follower.last_stable_offset == follower.log_end_offset == 24


def test_a_transaction_that_reaches_over_segments_is_found_from_each_of_them() -> None:
    log = new_log(config=SMALL)
    append(log, 7)
    for sequence in range(1, 60):
        append(log, 7, sequence)
    at = end(log, 7, ABORT)
    replicate(log)
    assert len(log.segments) > 3
    for segment in log.segments.all:
        assert [entry[:3] for entry in aborted(log, segment.base_offset)] == [(7, 0, at)]
    assert log.aborted_transactions(at + 1, at + 2) == []


def test_a_cut_brings_a_transaction_back_and_takes_what_lies_behind_it_away() -> None:
    log = new_log(config=SMALL)
    fill(log, 1)
    append(log, 7)
    at = end(log, 7, ABORT)
    append(log, 8)
    log.truncate_to(at)
    log.want_producers()
    assert log.producers.open_transactions == {7: 2}
    assert aborted(log) == []
    log.truncate_to(2)
    log.want_producers()
    assert log.producers.open_transactions == {}
    log.truncate_fully(1)
    assert (log.producers.first_unstable_offset, log.last_stable_offset) == (None, 1)


def test_a_transaction_that_begins_below_the_logs_start_is_unstable_from_the_start_on() -> None:
    """DeleteRecords stops at the high watermark, not at the stable offset; open transactions outlive it."""
    log = new_log(config=SMALL)
    append(log, 7)
    fill(log, 40)
    log.advance_log_start(30)
    assert log.last_stable_offset == 30
    log.drop_oldest(2)
    start = log.log_start_offset
    assert log.last_stable_offset == max(30, start)
    assert log.producers.open_transactions == {7: 0}
    at = end(log, 7, ABORT)
    replicate(log)
    assert log.last_stable_offset == at + 1


def test_an_entry_of_the_index_that_fails_reuses_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-7866: the marker lies in the log, and nothing may be written over it."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, 7)

    def full(*_: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(Segment, "note_aborted", full)
    with pytest.raises(StorageError):
        end(log, 7, ABORT)
    assert log.log_end_offset == 2
    monkeypatch.undo()
    again = opened(disk, known=Checkpointed(recovery_point=0))
    assert (again.log_end_offset, aborted(again)) == (2, [(7, 0, 1, 2)])
    assert again.producers.open_transactions == {}


def test_an_aborted_transaction_costs_as_much_with_a_thousand_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry alone is written into the index, as what was written before does not change."""
    written, write_at = [], MemoryFile.write_at

    def counted(file: MemoryFile, data: bytes, position: int) -> None:
        if file.path.endswith(".txnindex"):
            written.append(len(data))
        write_at(file, data, position)

    monkeypatch.setattr(MemoryFile, "write_at", counted)
    disk = MemoryDisk()
    log = new_log(disk)
    for number in range(1000):
        append(log, 7, number)
        end(log, 7, ABORT)
    assert written == [34] * 1000
    disk.restart()
    again = opened(disk, known=Checkpointed(recovery_point=0))
    append(again, 7, 1000)
    end(again, 7, ABORT)
    disk.restart()
    assert aborted(opened(disk, known=Checkpointed(recovery_point=0))) == aborted(again)
    assert len(aborted(again)) == 1001


def test_an_index_that_cannot_be_read_now_is_not_taken_for_an_empty_one() -> None:
    """Else readers of committed records see aborted ones, and the next entry is written over the first."""
    disk = MemoryDisk()
    entries = [AbortedTxn(7, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(3)]
    written = creation.create(disk, "/", 0, SMALL, NOW)
    for entry in entries[:2]:
        written.note_aborted(entry)
    segment = Segment(disk, "/", 0, created_ms=NOW)
    segment.has_aborted = True
    disk.fail("/", errno.EMFILE)
    for _ in range(2):
        with pytest.raises(DiskError):
            _ = segment.aborted
    disk.heal()
    segment.note_aborted(entries[2])
    again = Segment(disk, "/", 0, created_ms=NOW)
    again.has_aborted = True
    assert again.aborted == segment.aborted == entries


def test_an_entry_that_could_not_be_written_comes_with_the_next() -> None:
    disk = MemoryDisk()
    segment = creation.create(disk, "/", 0, SMALL, NOW)
    entries = [AbortedTxn(7, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(3)]
    segment.note_aborted(entries[0])
    disk.fail("/")
    with pytest.raises(DiskError):
        segment.note_aborted(entries[1])
    disk.heal()
    segment.note_aborted(entries[2])
    again = Segment(disk, "/", 0)
    again.has_aborted = True
    assert again.aborted == segment.aborted == entries


def test_a_markers_time_keeps_its_producer() -> None:
    """KAFKA-9144: else the epoch of the coordinator is forgotten, and a zombie's marker is taken."""
    log = new_log()
    data = bytearray(produced([b"x"], timestamp=NOW - 5000, producer_id=7, producer_epoch=0, base_sequence=0))
    log.append_as_leader(memoryview(data), 0, now_ms=NOW)
    end(log, 7, epoch=1)
    list(log.producers.expiring(NOW + 99, 100))
    assert log.producers.entries[7].epoch == 1
    list(log.producers.expiring(NOW + 100, 100))
    assert 7 not in log.producers.entries


def test_the_producer_of_an_open_transaction_does_not_expire() -> None:
    log = new_log()
    append(log, 7)
    list(log.producers.expiring(NOW + 10**9, 100))
    assert log.producers.open_transactions == {7: 0}


def test_markers_without_a_transaction_raise_epochs_and_are_in_no_index() -> None:
    """KAFKA-10702."""
    log = new_log()
    end(log, 7, ABORT, epoch=3)
    replicate(log)
    assert (aborted(log), log.producers.entries[7].epoch, log.last_stable_offset) == ([], 3, 1)
    append(log, 7, epoch=3)
    assert log.producers.open_transactions == {7: 1}


def test_what_a_marker_ended_begins_anew_with_the_next_sequence() -> None:
    log = new_log()
    append(log, 7, 0)
    end(log, 7)
    assert append(log, 7, 1) == 2
    end(log, 7, ABORT)
    assert aborted(log) == [(7, 2, 3, 4)]


def test_a_new_epoch_goes_on_with_an_open_transaction() -> None:
    """As in Kafka: the marker of the old epoch's end may lie behind the first batch of the new one."""
    log = new_log()
    append(log, 7, 0)
    append(log, 7, 0, epoch=1)
    assert log.producers.open_transactions == {7: 0}
    end(log, 7, ABORT, epoch=1)
    assert [entry[:3] for entry in aborted(log)] == [(7, 0, 2)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_what_is_open_and_what_was_aborted(clean: bool) -> None:
    disk = MemoryDisk()
    log = new_log(disk, SMALL)
    for number in range(30):
        append(log, 7, number)
        if number % 10 == 9:
            end(log, 7, ABORT)
    append(log, 8)
    found, states = aborted(log), log.producers.open_transactions
    if clean:
        log.close()
    else:
        disk.restart()
    again = opened(disk, SMALL, Checkpointed(recovery_point=log.log_end_offset if clean else 0, clean=clean))
    assert (aborted(again), again.producers.open_transactions) == (found, states)
    assert len(found) == 3


def test_a_batch_of_the_transaction_is_a_duplicate_while_it_is_open() -> None:
    log = new_log()
    first = log.append_as_leader(transactional(7, 0), 0, now_ms=NOW)
    again = log.append_as_leader(transactional(7, 0), 0, now_ms=NOW)
    assert (again.duplicate, again.first_offset) == (True, first.first_offset)
    assert batch.iter_headers(content(log)) is not None
    assert log.log_end_offset == 1


def test_an_entry_written_beside_a_flush_is_synced_by_the_next() -> None:
    """The flush has synced the index before the marker came, and a recovery reads no segment below its point."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, 7)
    end(log, 7, ABORT)
    append(log, 8)
    plan = log.prepare_flush()
    assert plan is not None
    plan.run()  # in a thread
    end(log, 8, ABORT)
    log.flush_state.done(plan)
    log.roll(log.log_end_offset, NOW)
    log.flush()
    found = aborted(log)
    assert [entry[0] for entry in found] == [7, 8]
    disk.restart(lambda _n: 0)  # nothing unsynced is left
    assert aborted(opened(disk, known=Checkpointed(recovery_point=log.recovery_point))) == found
    assert log.segments[0].unsynced == [], "nothing is synced again and again"
