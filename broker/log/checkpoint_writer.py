"""When the four checkpoints of each log directory are written, and what they say."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from logyard.broker.errors import StorageError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.log import layout
from logyard.broker.log.directory import LogDirectories, LogDirectory, Offsets
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition


class CheckpointWriter:
    """Writes the checkpoints of `directories`, which speak of `logs()`.

    Most writes wait for the disk in a thread, through `run`, one at a time. Those that must be done before anything
    else happens to a log are done on the spot; an older write that is under way is void then.
    """

    def __init__(self, directories: LogDirectories, logs: Callable[[], list[PartitionLog]], run: RunBlocking) -> None:
        self._directories, self._logs, self._run = directories, logs, run
        self._one_at_a_time = asyncio.Lock()

    def offsets(self, directory: LogDirectory, name: str) -> Offsets:
        """Return what a checkpoint of this directory should say now."""
        mine = (log for log in self._logs() if log.failure is None and directory.holds(log.directory))
        if name == layout.HIGH_WATERMARKS:
            return {log.tp: log.high_watermark for log in mine}
        if name == layout.RECOVERY_POINTS:
            return {log.tp: log.recovery_point for log in mine}
        if name == layout.LOG_STARTS:
            return {log.tp: log.log_start_offset for log in mine if log.log_start_offset > log.segments[0].base_offset}
        hosted = {log.tp for log in mine}
        return {tp: offset for tp, offset in directory.offsets[name].items() if tp in hosted}

    def on_disk(self, log: PartitionLog) -> dict[str, int | None]:
        """Return the log's line of each of the four checkpoints on disk, by file name."""
        offsets = self._directories.of(log.directory).offsets
        return {name: offsets.get(name, {}).get(log.tp) for name in layout.CHECKPOINTS}

    # -- in a thread ----------------------------------------------------------------------------------------

    async def write_everywhere(self, name: str) -> None:
        """Write one of the four checkpoints in every directory where it has changed."""
        for directory in self._directories.online:
            with suppress(StorageError):
                await self.write(directory, name)

    async def write(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint of one directory, if it has changed. Raises StorageError."""
        async with self._one_at_a_time:
            offsets = self.offsets(directory, name)
            if offsets != directory.offsets.get(name):
                await self._write_in_turn(directory, name, offsets)

    async def set_cleaner_offset(self, log: PartitionLog, offset: int) -> None:
        """Write up to where a log is cleaned. Raises StorageError."""
        directory, name = self._directories.of(log.directory), layout.CLEANER_OFFSETS
        async with self._one_at_a_time:
            await self._write_in_turn(directory, name, {**self.offsets(directory, name), log.tp: offset})

    async def _write_in_turn(self, directory: LogDirectory, name: str, offsets: Offsets) -> None:
        """Write a checkpoint; the caller holds the lock. A newer one written on the spot meanwhile wins."""
        turn = directory.begin_write(name)
        await self._run(lambda: directory.stage_write(name, offsets))
        if directory.finish_write(name, offsets, turn):
            await self._run(lambda: directory.disk.sync_directory(directory.root))

    # -- on the spot ----------------------------------------------------------------------------------------

    def forget(self, tp: TopicPartition, path: str) -> None:
        """A log is about to be made: let no checkpoint have an entry of an earlier log of that name.

        An old log start would have the new log dropped at the next start, an old watermark show what is not committed,
        an old cleaner's offset keep it from being cleaned.
        """
        directory = self._directories.of(path)
        for name in layout.CHECKPOINTS:
            if directory.speaks_of(name, tp):
                directory.write_now(name, self.offsets(directory, name))

    def recovery_point_fell(self, log: PartitionLog) -> None:
        """Let no checkpoint on disk, or on its way there, claim more than the log's recovery point."""
        directory, name = self._directories.of(log.directory), layout.RECOVERY_POINTS
        if directory.offsets[name].get(log.tp, 0) > log.recovery_point:
            directory.write_now(name, self.offsets(directory, name))
        else:
            directory.begin_write(name)

    def log_was_cut(self, log: PartitionLog, offset: int) -> None:
        """Let no checkpoint have a start or a cleaner's offset above the log's."""
        directory = self._directories.of(log.directory)
        cleaned = directory.offsets[layout.CLEANER_OFFSETS]
        if cleaned.get(log.tp, 0) > offset:
            cleaned[log.tp] = offset
            directory.write_now(layout.CLEANER_OFFSETS, self.offsets(directory, layout.CLEANER_OFFSETS))
        if directory.offsets[layout.LOG_STARTS].get(log.tp, 0) > log.log_start_offset:
            directory.write_now(layout.LOG_STARTS, self.offsets(directory, layout.LOG_STARTS))
