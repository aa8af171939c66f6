"""Opening a directory: the producers' state out of snapshots and records."""

from collections.abc import Callable
from typing import Any

import pytest

from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.records import batch
from tests.support.damaged_logs import SMALL, spoil
from tests.support.logs import (
    DIRECTORY,
    NOW,
    marker,
    names,
    new_log,
    opened,
    produced,
)


class TestProducers:
    def test_states_come_back_from_snapshots_and_batches(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        for sequence in range(60):
            data = produced([b"x" * 20], producer_id=7, producer_epoch=0, base_sequence=sequence)
            log.append_as_leader(data, 0, now_ms=NOW)
        for again in (opened(disk, SMALL), opened(disk, SMALL, Checkpointed(recovery_point=60))):
            assert again.producers.entries[7].last_sequence == 59
            assert again.producers.entries[7].last_offset == 59
        snapshots = [name for name in names(disk) if name.endswith(".snapshot")]
        assert len(snapshots) == len(log.segments) - 1

    def test_a_corrupt_snapshot_is_dropped_for_an_older_one(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        for sequence in range(60):
            data = produced([b"x" * 20], producer_id=7, producer_epoch=0, base_sequence=sequence)
            log.append_as_leader(data, 0, now_ms=NOW)
        newest = max(name for name in names(disk) if name.endswith(".snapshot"))
        spoil(disk, f"{DIRECTORY}/{newest}", 8)
        again = opened(disk, SMALL, Checkpointed(recovery_point=60))
        assert again.producers.entries[7].last_sequence == 59

    def test_an_open_transaction_is_open_again_and_aborted_ones_are_known(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk)

        def txn(producer_id: int) -> None:
            data = produced([b"t"], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
            log.append_as_leader(data, 0, now_ms=NOW)

        txn(1)
        txn(2)
        log.append_as_leader(marker(batch.ABORT, producer_id=1), 0, now_ms=NOW, origin=Origin.COORDINATOR)
        disk.remove(f"{DIRECTORY}/00000000000000000000.txnindex")
        again = opened(disk)
        again.set_high_watermark(3)
        assert again.last_stable_offset == 1
        assert again.aborted_transactions(0, 3) == [(1, 0, 2, 1)]
        assert again.aborted_transactions(0, 3) == log.aborted_transactions(0, 3)
        log.close()
        clean = opened(disk, known=Checkpointed(recovery_point=3, clean=True))
        assert clean.aborted_transactions(0, 3) == [(1, 0, 2, 1)]
        assert clean.producers.open_transactions == {2: 1}

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize(
        "harm",
        [
            lambda file: file.truncate(33),
            lambda file: file.write_at(b"\xff\xff", 0),
            lambda file: file.write_at(bytes(8), 18),
            lambda file: file.truncate(34 * 3),
        ],
    )
    def test_a_damaged_transaction_index_below_the_recovery_point_is_made_again(
        self, harm: Callable[[Any], None], clean: bool
    ) -> None:
        disk = MemoryDisk()
        log = new_log(disk)
        for producer_id in (1, 2):
            data = produced([b"t"] * 2, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
            log.append_as_leader(data, 0, now_ms=NOW)
        log.roll(4, NOW)  # the transactions began in another segment
        for producer_id in (1, 2):
            log.append_as_leader(marker(batch.ABORT, producer_id=producer_id), 0, now_ms=NOW, origin=Origin.COORDINATOR)
        log.roll(6, NOW)
        log.append_as_leader(produced([b"on"]), 0, now_ms=NOW)
        log.set_high_watermark(7)
        expected = log.aborted_transactions(0, 7)
        assert expected == [(1, 0, 4, 2), (2, 2, 5, 6)]
        log.close()
        harm(disk.open(f"{DIRECTORY}/{4:020d}.txnindex", write=True))
        notes: list[str] = []
        again = opened(disk, known=Checkpointed(recovery_point=7, clean=clean), notes=notes)
        assert any("txnindex: rebuilding it" in note for note in notes)
        assert again.aborted_transactions(0, 7) == expected
        quiet: list[str] = []
        again.close()
        opened(disk, known=Checkpointed(recovery_point=7, clean=True), notes=quiet)
        assert quiet == []
