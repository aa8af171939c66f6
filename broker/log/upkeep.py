"""What is done to logs from time to time: flushes, checkpoints, retention, forgetting of silent producers.

Coroutines without a clock of their own: the store says when. What waits for the disk goes through `run`; between many
logs the event loop gets its turn through `pause`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from logyard.broker.clock import Clock
from logyard.broker.errors import LogyardError, StorageError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.log import layout
from logyard.broker.log.directory import LogDirectories, LogDirectory, Offsets
from logyard.broker.log.disk.port import Disk, remove_if_there
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.retention import delete_old_segments
from logyard.broker.model import TopicPartition

LOGS_PER_TURN = 64
SEGMENTS_PER_TURN = 4  # of one log


class Upkeep:
    """Looks after all `logs`, and hears what they report. A log whose directory fails in the midst is passed over.

    `later(delay_ms, work)` does something in a thread after a while; `wake` asks for `flush_waiting` soon.
    """

    def __init__(
        self,
        clock: Clock,
        run: RunBlocking,
        pause: Callable[[], Awaitable[None]],
        one_at_a_time: AbstractAsyncContextManager[Any],
        logs: Callable[[], list[PartitionLog]],
        directories: LogDirectories,
        later: Callable[[int, Callable[[], object]], None],
        wake: Callable[[], object],
        on_cut: Callable[[PartitionLog, int], object],
        note: Callable[[str], None],
    ) -> None:
        self._clock, self._run, self._pause = clock, run, pause
        self._one_at_a_time = one_at_a_time
        self._logs, self._directories = logs, directories
        self._later, self._wake, self._on_cut, self._note = later, wake, on_cut, note
        self._to_flush: dict[PartitionLog, bool] = {}  # whole, or only up to the active segment

    # -- what logs report (LogKeeper) -----------------------------------------------------------------------

    def forget(self, tp: TopicPartition, path: str) -> None:
        """See to it that no checkpoint has an entry of an earlier log of that name.

        An old log start would have the new log dropped at the next start, an old watermark show what is not committed,
        an old cleaner's offset keep it from being cleaned.
        """
        directory = self._directories.of(path)
        for name in layout.CHECKPOINTS:
            if directory.speaks_of(name, tp):
                directory.write_now(name, self.offsets(directory, name))

    def rolled(self, log: PartitionLog) -> None:
        self._to_flush.setdefault(log, False)
        self._wake()

    def retired(self, log: PartitionLog, paths: Sequence[str]) -> None:
        self._later(log.config.file_delete_delay_ms, lambda: _remove(log.disk, paths))

    def rewinding(self, log: PartitionLog) -> None:
        """See to it that no checkpoint on disk, or on its way there, has more than the log's recovery point."""
        directory, name = self._directories.of(log.directory), layout.RECOVERY_POINTS
        if directory.offsets[name].get(log.tp, 0) > log.recovery_point:
            directory.write_now(name, self.offsets(directory, name))
        else:
            directory.begin_write(name)

    def cut(self, log: PartitionLog, offset: int) -> None:
        """See to it that no checkpoint has a start or a cleaner's offset above a log's, and make the cut durable soon.

        A machine that lost its power might otherwise find what was cut off, behind what was written over it.
        """
        self._to_flush[log] = True
        self._wake()
        directory = self._directories.of(log.directory)
        cleaned = directory.offsets[layout.CLEANER_OFFSETS]
        if cleaned.get(log.tp, 0) > offset:
            cleaned[log.tp] = offset
            directory.write_now(layout.CLEANER_OFFSETS, self.offsets(directory, layout.CLEANER_OFFSETS))
        if directory.offsets[layout.LOG_STARTS].get(log.tp, 0) > log.log_start_offset:
            directory.write_now(layout.LOG_STARTS, self.offsets(directory, layout.LOG_STARTS))
        self._on_cut(log, offset)

    def damaged(self, log: PartitionLog, what: str) -> None:
        self._note(f"{log.directory}: {what}")

    # -- work on all logs -----------------------------------------------------------------------------------

    async def _each(self, work: Callable[[PartitionLog], object], logs: Sequence[PartitionLog] | None = None) -> None:
        for number, log in enumerate(self._logs() if logs is None else logs, start=1):
            with suppress(LogyardError, FileNotFoundError):  # its own trouble, told when it is next used
                work(log)
            if number % LOGS_PER_TURN == 0:
                await self._pause()

    async def retire_segments(self) -> None:
        """Apply retention to every log (facts §13)."""
        now_ms = self._clock.now_ms()
        going = self._logs()
        while going:
            again: list[PartitionLog] = []

            def retire(log: PartitionLog, again: list[PartitionLog] = again) -> None:
                if delete_old_segments(log, now_ms, SEGMENTS_PER_TURN) == SEGMENTS_PER_TURN:
                    again.append(log)

            await self._each(retire, going)
            if going := again:
                await self._pause()

    async def expire_producers(self, expiration_ms: int) -> None:
        """Forget producers that were silent for that long."""
        now_ms = self._clock.now_ms()
        await self._each(lambda log: log.producers.expire(now_ms, expiration_ms))

    async def flush(self, log: PartitionLog, up_to: int | None = None) -> None:
        """Make a log durable up to an offset (default: its end) without holding up the event loop."""
        begun = self._clock.monotonic()
        plan = log.prepare_flush(up_to)
        if plan is not None:
            await self._run(plan.run)
            log.flush_state.done(plan)
        log.flush_state.flushed_at = begun

    async def flush_waiting(self) -> None:
        """Flush logs that have begun new segments, up to these, and logs that were cut, to the end."""
        waiting, self._to_flush = self._to_flush, {}
        for log, whole in waiting.items():
            await self._flush_in_turn(log, None if whole else log.segments.active.base_offset)

    async def flush_overdue(self) -> None:
        """Flush the logs whose flush.ms has passed."""
        now = self._clock.monotonic()
        for log in self._logs():
            state = log.flush_state
            if state.flushed_at is None:
                state.flushed_at = now
            if state.recovery_point < log.log_end_offset and (now - state.flushed_at) * 1000 >= log.config.flush_ms:
                await self._flush_in_turn(log)

    async def _flush_in_turn(self, log: PartitionLog, up_to: int | None = None) -> None:
        """Flush one of many: what goes wrong with it keeps no other from its turn."""
        try:
            await self.flush(log, up_to)
        except StorageError:
            pass  # deleted or offline by now
        except Exception as error:
            self._note(f"{log.directory}: not flushed: {error!r}")

    # -- checkpoints ----------------------------------------------------------------------------------------

    def offsets(self, directory: LogDirectory, name: str) -> Offsets:
        """What a checkpoint of this directory should say now."""
        mine = (log for log in self._logs() if log.failure is None and directory.holds(log.directory))
        if name == layout.HIGH_WATERMARKS:
            return {log.tp: log.high_watermark for log in mine}
        if name == layout.RECOVERY_POINTS:
            return {log.tp: log.recovery_point for log in mine}
        if name == layout.LOG_STARTS:
            return {log.tp: log.log_start_offset for log in mine if log.log_start_offset > log.segments[0].base_offset}
        hosted = {log.tp for log in mine}
        return {tp: offset for tp, offset in directory.offsets[name].items() if tp in hosted}

    async def checkpoint(self, name: str) -> None:
        """Write one of the four checkpoints in every directory where it has changed."""
        for directory in self._directories.online:
            with suppress(StorageError):
                await self.write(directory, name)

    async def write(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint of one directory, if it has changed."""
        async with self._one_at_a_time:
            offsets = self.offsets(directory, name)
            if offsets != directory.offsets.get(name):
                await self._write_in_turn(directory, name, offsets)

    async def _write_in_turn(self, directory: LogDirectory, name: str, offsets: Offsets) -> None:
        """Write a checkpoint; the caller holds `one_at_a_time`. A newer one written on the spot meanwhile wins."""
        turn = directory.begin_write(name)
        await self._run(lambda: directory.stage_write(name, offsets))
        if directory.finish_write(name, offsets, turn):
            await self._run(lambda: directory.disk.sync_directory(directory.root))

    async def set_cleaner_offset(self, log: PartitionLog, offset: int) -> None:
        """Write up to where a log is cleaned."""
        directory, name = self._directories.of(log.directory), layout.CLEANER_OFFSETS
        async with self._one_at_a_time:
            await self._write_in_turn(directory, name, {**self.offsets(directory, name), log.tp: offset})


def _remove(disk: Disk, paths: Iterable[str]) -> None:
    for path in paths:
        remove_if_there(disk, path)
