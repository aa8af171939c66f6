"""PartitionLog: new segments when file descriptors run out."""

import errno

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.log.retention import delete_old_segments
from tests.support.logs import NOW, content, fill, new_log, opened


class TestRollWithoutDescriptors:
    """Out of file descriptors, the log goes on in its old segment; an empty new one must not stay beside it."""

    @pytest.mark.parametrize("cleanly", [True, False])
    @pytest.mark.parametrize("missing", [".index", ".timeindex"])
    def test_what_is_written_afterwards_is_kept(self, missing: str, cleanly: bool) -> None:
        disk = MemoryDisk()
        config = TopicConfig(retention_ms=1000)
        log = new_log(disk, config)
        fill(log, 3)
        disk.fail(f"{log.directory}/{6:020}{missing}", errno.EMFILE)
        with pytest.raises(DiskError):
            delete_old_segments(log, NOW + 1001)
        disk.heal()
        fill(log, 2)
        known = Checkpointed(recovery_point=10, clean=True)
        if not cleanly:
            log.roll(10, NOW)
            fill(log, 2)
            known = Checkpointed()
        written, end = content(log), log.log_end_offset
        if cleanly:
            log.close()
        again = opened(disk, config, known)
        assert again.log_end_offset == end
        assert content(again) == written

    def test_repeated_it_takes_no_more_descriptors(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk)
        fill(log, 3)
        disk.fail(f"{log.directory}/{6:020}.index", errno.EMFILE)
        held = []
        for _ in range(3):
            with pytest.raises(DiskError):
                log.roll(6, NOW)
            held.append(len(log.segments.active.unsynced))
        assert held == [3, 3, 3], "the log and its two indexes"
