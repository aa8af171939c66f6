"""When logs are flushed: soon after a segment was sealed or the log was cut, and when flush.ms has passed."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from logyard.broker.clock import Clock
from logyard.broker.errors import StorageError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.portions import portions

RETRY_S = 1.0


class Flusher:
    """Flushes `logs()` without blocking the event loop: syncs go through `run`."""

    def __init__(
        self, clock: Clock, run: RunBlocking, logs: Callable[[], list[PartitionLog]], note: Callable[[str], None]
    ) -> None:
        self._clock, self._run, self._logs, self._note = clock, run, logs, note
        self._waiting: dict[PartitionLog, bool] = {}  # whether to flush all of it, or only the closed segments
        self._wanted = asyncio.Event()

    async def flush(self, log: PartitionLog, up_to: int | None = None) -> None:
        """Make a log durable up to an offset (default: its end). Raises StorageError."""
        begun = self._clock.monotonic()
        plan = log.prepare_flush(up_to)
        if plan is not None:
            await self._run(plan.run)
            log.flush_state.done(plan)
        log.flush_state.flushed_at = begun

    def flush_soon(self, log: PartitionLog, *, whole: bool) -> None:
        """Have the log flushed by `flush_waiting`: all of it, or all but the active segment."""
        self._waiting[log] = whole or self._waiting.get(log, False)
        self._wanted.set()

    async def serve(self) -> None:
        """Call `flush_waiting` whenever a flush was asked for, and a while after one was refused; never returns."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._waiting else None):
                    await self._wanted.wait()
            self._wanted.clear()
            await self.flush_waiting()

    async def flush_waiting(self) -> None:
        """Flush the logs that `flush_soon` was called for; those that are out of file descriptors go on waiting."""
        waiting, self._waiting = self._waiting, {}
        for log, whole in waiting.items():
            if not await self._flush_one_of_many(log, None if whole else log.segments.active.base_offset):
                self._waiting[log] = whole or self._waiting.get(log, False)

    async def flush_overdue(self) -> None:
        """Flush the logs whose flush.ms has passed."""
        now = self._clock.monotonic()
        async for logs in portions(self._logs()):
            for log in logs:
                state = log.flush_state
                if state.flushed_at is None:
                    state.flushed_at = now
                if state.recovery_point < log.log_end_offset and (now - state.flushed_at) * 1000 >= log.config.flush_ms:
                    await self._flush_one_of_many(log)

    async def _flush_one_of_many(self, log: PartitionLog, up_to: int | None = None) -> bool:
        """Flush one log; an error must not keep the other logs from being flushed. False: try again later."""
        try:
            await self.flush(log, up_to)
        except StorageError as error:
            return not error.is_passing  # otherwise deleted, or offline: the disk reports what it fails in
        except Exception as error:
            self._note(f"{log.directory}: not flushed: {error!r}")
        return True
