"""The four checkpoints of each log directory: their contents, and when they are written.

Those that nobody waits for are gathered in portions of logs. What is gathered counts as being written from the
beginning: a log that is cut meanwhile has the whole of it discarded, or is gathered as it is after the cut.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from logyard.broker.errors import StorageError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.log import layout
from logyard.broker.log.directory import LogDirectories, LogDirectory, Offsets
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition
from logyard.broker.portions import portions


class CheckpointWriter:
    """Writes the checkpoints of `directories`; `logs()` are the logs whose offsets they hold.

    Most writes run in a thread, through `run`, one at a time. Writes that must be finished before anything else happens
    to a log are done at once; a slower older write is discarded then.
    """

    def __init__(self, directories: LogDirectories, logs: Callable[[], list[PartitionLog]], run: RunBlocking) -> None:
        self._directories, self._logs, self._run = directories, logs, run
        self._one_at_a_time = asyncio.Lock()
        self._cleaned: dict[PartitionLog, int] = {}  # cleaner offsets that are being written
        self._is_closed = False

    def offsets(self, directory: LogDirectory, name: str) -> Offsets:
        """Return the current content of a checkpoint of this directory."""
        return self._entries(directory, name, self._logs())

    def _entries(self, directory: LogDirectory, name: str, logs: Iterable[PartitionLog]) -> Offsets:
        """What these logs are in a checkpoint of the directory."""
        mine = (log for log in logs if log.failure is None and directory.holds(log.directory))
        if name == layout.HIGH_WATERMARKS:
            return {log.tp: log.high_watermark for log in mine}
        if name == layout.RECOVERY_POINTS:
            return {log.tp: log.recovery_point for log in mine}
        if name == layout.LOG_STARTS:
            return {log.tp: log.log_start_offset for log in mine if log.log_start_offset > log.segments[0].base_offset}
        cleaned = directory.offsets[name]
        return {log.tp: min(cleaned[log.tp], log.log_end_offset) for log in mine if log.tp in cleaned}

    def on_disk(self, log: PartitionLog) -> dict[str, int | None]:
        """Return the log's entry in each of the four checkpoints on disk, by file name; None where it has none."""
        offsets = self._directories.of(log.directory).offsets
        return {name: offsets.get(name, {}).get(log.tp) for name in layout.CHECKPOINTS}

    # -- in a thread ----------------------------------------------------------------------------------------

    async def write_everywhere(self, name: str) -> None:
        """Write one of the four checkpoints in every directory where it has changed."""
        for directory in self._directories.online:
            with suppress(StorageError):
                await self.write(directory, name)

    async def settle_loaded(self, directory: LogDirectory) -> None:
        """After loading, before anything is appended: write the checkpoints that have more of a log than recovery left.

        What is appended to that log would count as flushed (committed, cleaned) up to the old offset, and the next
        recovery would not check it. Raises StorageError.
        """
        for name in layout.CHECKPOINTS:
            if await self._has_more(directory, name):
                await self.write(directory, name)

    async def _has_more(self, directory: LogDirectory, name: str) -> bool:
        """Whether a checkpoint on disk has more of a log than there is."""
        on_disk = directory.offsets[name]
        async for logs in portions(self._logs()):
            if any(on_disk.get(tp, 0) > offset for tp, offset in self._entries(directory, name, logs).items()):
                return True
        return False

    def close(self) -> None:
        """Refuse what is still asked for, as by a move that waits for the disk: it would leave out the logs that are
        closed by then. What is being written is discarded by the last writes, which are done at once."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError("the logs are being closed: no checkpoint is written any more")

    async def write(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint of one directory, if it has changed. Raises StorageError."""
        async with self._one_at_a_time:
            self._check_open()
            offsets, turn = await self._gather(directory, name)
            if offsets == directory.offsets.get(name):
                directory.end_write(name, turn)
            else:
                await self._write_in_turn(directory, name, offsets, turn)

    async def set_cleaner_offset(self, log: PartitionLog, offset: int) -> None:
        """Write the log's cleaner offset: it is cleaned below that, or below where it was cut meanwhile.

        A newer write of the same checkpoint does not have this offset, so it is written again after one. Raises
        StorageError.
        """
        directory, name = self._directories.of(log.directory), layout.CLEANER_OFFSETS
        async with self._one_at_a_time:
            self._cleaned[log] = offset
            try:
                written = False
                while not written:
                    self._check_open()
                    log.check_usable()
                    offsets, turn = await self._gather(directory, name)
                    offsets[log.tp] = self._cleaned[log]
                    written = await self._write_in_turn(directory, name, offsets, turn)
            finally:
                del self._cleaned[log]

    async def _gather(self, directory: LogDirectory, name: str) -> tuple[dict[TopicPartition, int], int]:
        """Begin to write a checkpoint: return its content and its turn."""
        offsets: dict[TopicPartition, int] = {}
        turn = directory.begin_write(name, offsets)
        async for logs in portions(self._logs()):
            offsets.update(self._entries(directory, name, logs))
        return offsets, turn

    async def _write_in_turn(self, directory: LogDirectory, name: str, offsets: Offsets, turn: int) -> bool:
        """Write what was gathered; the caller holds the lock. False: a newer write came in between, and wins."""
        await self._run(lambda: directory.stage_write(name, offsets))
        if not directory.finish_write(name, offsets, turn):
            return False
        await self._run(lambda: directory.disk.sync_directory(directory.root))
        return True

    # -- on the spot ----------------------------------------------------------------------------------------

    def forget(self, tp: TopicPartition, path: str) -> None:
        """Before a log is created: remove what the checkpoints hold of an earlier log of that name.

        An old log start would delete the new log at the next start, an old high watermark would show uncommitted
        records, and an old cleaner offset would keep the log from being cleaned.
        """
        directory = self._directories.of(path)
        for name in layout.CHECKPOINTS:
            if directory.mentions(name, tp):
                directory.write_now(name, self.offsets(directory, name))

    def before_cut(self, log: PartitionLog, offset: int) -> None:
        """Make sure that no checkpoint, on disk or being written, has more of a log than a cut at `offset` leaves.

        If the log is not cut then, the next write of a checkpoint has what it is. Raises DiskError.
        """
        directory, tp = self._directories.of(log.directory), log.tp
        if directory.offsets[layout.RECOVERY_POINTS].get(tp, 0) > offset:
            self._lower(directory, layout.RECOVERY_POINTS, tp, offset)
        elif log.recovery_point > offset:
            directory.discard_write(layout.RECOVERY_POINTS)
        if log in self._cleaned:
            self._cleaned[log] = min(self._cleaned[log], offset)
        if directory.highest(layout.CLEANER_OFFSETS, tp) > offset:
            self._lower(directory, layout.CLEANER_OFFSETS, tp, offset)
        start = min(log.log_start_offset, offset)
        if directory.highest(layout.LOG_STARTS, tp) > start:
            self._lower(directory, layout.LOG_STARTS, tp, start)

    def _lower(self, directory: LogDirectory, name: str, tp: TopicPartition, most: int) -> None:
        offsets = self.offsets(directory, name)
        if tp in offsets:
            offsets[tp] = min(offsets[tp], most)
        directory.write_now(name, offsets)
