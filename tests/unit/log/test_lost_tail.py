"""Reads of a log one of whose closed segments has lost its tail."""

import pytest

from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.log.retention import delete_old_segments
from tests.support.logs import NOW, SMALL, fill, new_log, offsets, opened


class TestLostTail:
    """A closed segment was cut after a clean stop, inside a batch."""

    def _cut(self, cut: int, clean: bool) -> tuple[PartitionLog, int]:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        following = log.segments[2].base_offset
        log.close()
        path = log.segments[1].path(".log")
        disk.open(path, write=True).truncate(disk.status(path).size - cut)
        return opened(disk, SMALL, Checkpointed(recovery_point=120, clean=clean)), following

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("cold", [False, True])
    @pytest.mark.parametrize("cut", [1, 60, 310])
    def test_the_sound_segments_are_served(
        self, cut: int, cold: bool, clean: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, following = self._cut(cut, clean)
        log.disk.cold = cold  # type: ignore[attr-defined]
        log.set_high_watermark(120)
        told: list[str] = []
        monkeypatch.setattr(log.host.listener, "damaged", lambda _log, what: told.append(what))
        found = []
        offset = 0
        while offset < 120:
            piece = log.read(offset, 100, limit_offset=120, min_one=True)
            data = piece.load_nowait()
            data = piece.load() if data is None else data
            got = offsets(data)
            assert got, f"nothing at {offset}"
            found += got
            offset = got[-1][1] + 1
        every = [(n * 2, n * 2 + 1) for n in range(60)]
        lost = [places for places in every if places not in found]
        assert found == [places for places in every if places not in lost]
        assert 1 <= len(lost) <= 5
        assert lost[-1][1] == following - 1
        assert len(told) == 1
        assert f"offset {lost[0][0]} " in told[0]
        assert log.segments.lost_tails == {log.segments[1].base_offset: lost[0][0]}
        assert log.timestamp_search(NOW)() == (NOW, 0, 0)
        assert log.timestamp_search(NOW + 1)() is None

    def test_a_large_fetch_ends_where_it_does(self) -> None:
        log, following = self._cut(10, True)
        base = log.segments[1].base_offset
        piece = log.read(base, 1 << 20, limit_offset=120, min_one=True)
        data = piece.load()
        assert len(data) == log.segments[1].size, "clients leave a batch that is cut short"
        assert offsets(data)[-1][1] == following - 3

    def test_the_loss_is_forgotten_with_the_segment(self) -> None:
        log, following = self._cut(10, True)
        log.set_high_watermark(120)
        log.read(following - 1, 100, limit_offset=120, min_one=True).load()
        assert log.segments.lost_tails
        log.advance_log_start(following)
        delete_old_segments(log, NOW)
        assert not log.segments.lost_tails
