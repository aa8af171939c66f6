"""Periodic expiry in logs: old segments by the topic's retention, and silent producers."""

from collections.abc import Awaitable, Callable, Sequence

from logyard.broker import tasks
from logyard.broker.clock import Clock
from logyard.broker.errors import LogyardError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.retention import delete_old_segments

LOGS_PER_TURN = 64
SEGMENTS_PER_TURN = 4  # of one log
PRODUCERS_OF_A_LOG = 100  # a look at so many counts as a log more


class Expiry:
    """Goes through all `logs()`; `pause` yields to the event loop every `LOGS_PER_TURN` logs.

    A log whose directory fails meanwhile is skipped: the error is raised when the log is next used. Whatever else goes
    wrong with one log is logged and counted: it must not keep all others from being shortened, until the disk is full.
    """

    def __init__(
        self, clock: Clock, logs: Callable[[], list[PartitionLog]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        self._clock, self._logs, self._pause = clock, logs, pause

    async def delete_old_segments(self) -> None:
        """Apply retention to every log (facts §13)."""
        now_ms = self._clock.now_ms()
        going = self._logs()
        while going:
            again: list[PartitionLog] = []

            def delete(log: PartitionLog, again: list[PartitionLog] = again) -> None:
                if delete_old_segments(log, now_ms, SEGMENTS_PER_TURN) == SEGMENTS_PER_TURN:
                    again.append(log)

            await self._each(delete, going)
            if going := again:
                await self._pause()

    async def expire_producers(self, expiration_ms: int) -> None:
        """Forget the producers that have been silent for `expiration_ms`."""
        now_ms = self._clock.now_ms()
        left = LOGS_PER_TURN
        for log in self._logs():
            steps = log.producers.expiring(now_ms, expiration_ms)
            looked_at: int | None = 0
            while looked_at is not None:
                left -= 1 + looked_at // PRODUCERS_OF_A_LOG
                if left <= 0:
                    left = LOGS_PER_TURN
                    await self._pause()
                try:
                    looked_at = next(steps, None)
                except Exception as bug:
                    looked_at = None
                    _note(log, bug)

    async def _each(self, work: Callable[[PartitionLog], object], logs: Sequence[PartitionLog]) -> None:
        for number, log in enumerate(logs, start=1):
            try:
                work(log)
            except (LogyardError, FileNotFoundError):
                pass
            except Exception as bug:
                _note(log, bug)
            if number % LOGS_PER_TURN == 0:
                await self._pause()


def _note(log: PartitionLog, bug: Exception) -> None:
    found = RuntimeError(f"{log.tp}: {bug!r}")
    found.__cause__ = bug
    tasks.failed("expiry of logs", found)
