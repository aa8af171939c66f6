"""The built-in cleaner (`log.cleaner.enable`): takes a lease on a log, has it cleaned, commits the parts.

Rule 1: one way to clean a log: the lease, the parts and the commit are those of a Spark job (docs/leases.md), so a log
        that a job holds is left alone, and what a commit checks is checked here too.
Rule 2: a log that cannot be cleaned (a damaged batch, a format too old) is marked uncleanable, once, with the reason,
        until it is deleted or the broker starts again; other trouble (no space, a lost lease) is tried again later.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.cleaner import own_run, selection
from logyard.broker.cleaner.selection import Candidate
from logyard.broker.cleaner.settings import CleanerSettings
from logyard.broker.cleaner.worker import CleaningWorker, WorkerDied
from logyard.broker.clock import Clock
from logyard.broker.config.topic import LONG_MAX
from logyard.broker.errors import CorruptData, LogyardError, StorageError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.leases.book import CLEANER_RUN, LeaseError
from logyard.broker.leases.cleanable import cleanable_end_of
from logyard.broker.leases.service import LeaseService
from logyard.broker.log import layout
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.segment.segment import Segment
from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import HEADER_SIZE, parse_header

LOGS_PER_TURN = 64
REST_S_MIN = 1.0
REST_S_MAX = 600.0

log = structlog.get_logger("logyard.cleaner")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CleanerPorts:
    """What the cleaner works with; `clean_offset`: up to where a log is clean, `is_held`: whether a run compacts it."""

    logs: Callable[[], list[PartitionLog]]
    find: Callable[[TopicPartition], PartitionLog | None]
    clean_offset: Callable[[PartitionLog], int]
    is_held: Callable[[TopicPartition], bool]
    lease_service: LeaseService
    clock: Clock
    run_blocking: RunBlocking
    open_worker: Callable[[], CleaningWorker]


@dataclass(slots=True)
class _Trouble:
    """A log that could not be cleaned: how often in a row, and when it may be tried again (monotonic seconds).

    `not_before` is infinite for one that was given up.
    """

    log: PartitionLog
    reason: str
    attempts: int
    not_before: float


class LogCleaner:
    """See the head of this file. Everything but the cleaning itself happens on the event loop."""

    def __init__(self, ports: CleanerPorts, settings: CleanerSettings) -> None:
        self._ports = ports
        self._settings = settings
        self._workers: dict[int, CleaningWorker] = {}
        self._threads: dict[int, asyncio.Task[None]] = {}
        self._at_work: set[TopicPartition] = set()
        self._trouble: dict[TopicPartition, _Trouble] = {}
        self._changed = asyncio.Event()
        self._running = False
        self.cleaned = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.dirtiest = 0.0
        self.slowest_s = 0.0

    # -- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to clean."""
        self._running = True
        self._employ()

    def configure(self, settings: CleanerSettings) -> None:
        """Go by these settings: those who rest look again at once, work under way goes on at the new rate."""
        if settings == self._settings:
            return
        self._settings = settings
        for worker in self._workers.values():
            worker.pace(settings.bytes_per_second_each)
        self._changed.set()
        self._changed = asyncio.Event()
        if self._running:
            self._employ()

    def _employ(self) -> None:
        for number in range(self._settings.threads):
            if number not in self._threads or self._threads[number].done():
                self._threads[number] = tasks.keep("cleaner", partial(self._thread, number))

    async def close(self) -> None:
        """Stop, in the midst of a cleaning too; leases are left to whoever closes them."""
        self._running = False
        for task in self._threads.values():
            task.cancel()
        await asyncio.gather(*self._threads.values(), return_exceptions=True)

    def gauges(self) -> dict[str, int]:
        """Kafka's figures of a cleaner (kafka.log:type=LogCleaner, LogCleanerManager)."""
        return {
            "cleaner_uncleanable_partitions_count": len(self.uncleanable),
            "cleaner_max_dirty_percent": round(100 * self.dirtiest),
            "cleaner_recopy_percent": round(100 * self.bytes_written / self.bytes_read) if self.bytes_read else 0,
            "cleaner_max_clean_time_secs": round(self.slowest_s),
            "cleaner_logs_cleaned": self.cleaned,
        }

    async def _thread(self, number: int) -> None:
        worker = self._workers[number] = self._ports.open_worker()
        try:
            while number < self._settings.threads:
                busy = False
                try:
                    busy = await self.clean_filthiest(worker)
                except Exception as error:  # a cleaner that is gone would go unnoticed for weeks
                    log.error("the cleaner failed", error=repr(error), exc_info=error)
                if not busy:
                    await worker.end()
                    await self._rest()
        finally:
            del self._workers[number]
            await worker.end()

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.backoff_ms / 1000):
                await self._changed.wait()

    # -- choosing -------------------------------------------------------------------------------------------

    async def clean_filthiest(self, worker: CleaningWorker) -> bool:
        """Clean the log that needs it most; returns whether there was one."""
        found = selection.filthiest(await self._candidates())
        if found is None:
            return False
        if found.tp in self._at_work:
            return True  # another thread was quicker: look again
        self._at_work.add(found.tp)
        try:
            await self._clean(found, worker)
        finally:
            self._at_work.discard(found.tp)
        return True

    async def _candidates(self) -> list[Candidate]:
        found: list[Candidate] = []
        self._forget_the_gone()
        for number, kept in enumerate(self._ports.logs(), start=1):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            if self._may_be_cleaned(kept):
                try:
                    found.append(await self._judge(kept))
                except (LogyardError, FileNotFoundError):
                    pass  # its own trouble, told when it is next used
                except Exception as bug:
                    self._not_cleaned(kept, bug)
        self.dirtiest = max((candidate.ratio for candidate in found), default=0.0)
        return found

    def _may_be_cleaned(self, kept: PartitionLog) -> bool:
        if not kept.config.compacted or kept.failure is not None or kept.is_future:
            return False
        if kept.tp in self._at_work or self._ports.is_held(kept.tp):
            return False
        trouble = self._trouble.get(kept.tp)
        return trouble is None or trouble.not_before <= self._ports.clock.monotonic()

    async def _judge(self, kept: PartitionLog) -> Candidate:
        now_ms = self._ports.clock.now_ms()
        clean_offset = self._ports.clean_offset(kept)
        end_offset = cleanable_end_of(kept, clean_offset, now_ms)
        first_dirty_at_ms = -1
        if kept.config.max_compaction_lag_ms < LONG_MAX and end_offset > clean_offset:
            first = kept.segments[kept.segments.number_of(clean_offset)]
            first_dirty_at_ms = await self._ports.run_blocking(partial(_first_timestamp, first))
        return selection.judge(kept, clean_offset, end_offset, first_dirty_at_ms, now_ms)

    def _forget_the_gone(self) -> None:
        for tp, trouble in list(self._trouble.items()):
            if self._ports.find(tp) is not trouble.log:
                del self._trouble[tp]

    # -- cleaning -------------------------------------------------------------------------------------------

    async def _clean(self, found: Candidate, worker: CleaningWorker) -> None:
        began = self._ports.clock.monotonic()
        kept = self._ports.find(found.tp)
        if kept is None:
            return
        try:
            done = await self._clean_leased(found.tp, worker)
        except Exception as error:
            if self._ports.find(found.tp) is kept:  # else it was deleted or moved meanwhile: no trouble of anybody's
                self._not_cleaned(kept, error)
        else:
            self._trouble.pop(found.tp, None)
            seconds = self._ports.clock.monotonic() - began
            self.slowest_s = max(self.slowest_s, seconds)
            self.cleaned += 1
            log.info(
                "log cleaned", replica=str(found.tp), seconds=round(seconds, 2), dirty=round(found.ratio, 2), **done
            )

    async def _clean_leased(self, tp: TopicPartition, worker: CleaningWorker) -> Json:
        settings = self._settings
        worker.pace(settings.bytes_per_second_each)
        done = await own_run.run(self._ports.lease_service, worker, tp, CLEANER_RUN, {"keys_max": settings.keys_max})
        self.bytes_read += done["bytes_before"]
        self.bytes_written += done["bytes_after"]
        return {
            "records": f"{done['records_in']}→{done['records_out']}",
            "bytes": f"{done['bytes_before']}→{done['bytes_after']}",
            "segments": f"{done['segments_before']}→{done['segments_after']}",
            "clean_offset": done["clean_offset"],
        }

    def _not_cleaned(self, kept: PartitionLog, error: Exception) -> None:
        if isinstance(error, CorruptData):
            self._give_up(kept, str(error))
            return
        if not isinstance(error, LeaseError | StorageError | WorkerDied):
            # Told, and left for a while like other trouble: chosen again at once it would keep all others dirty.
            tasks.failed("cleaner", error)
        self._try_later(kept, str(error) or repr(error))

    def _give_up(self, kept: PartitionLog, reason: str) -> None:
        log.error("log cannot be cleaned, it is left alone until the next start", replica=str(kept.tp), reason=reason)
        self._trouble[kept.tp] = _Trouble(kept, reason, 1, inf)

    def _try_later(self, kept: PartitionLog, reason: str) -> None:
        """Rest longer each time."""
        before = self._trouble.get(kept.tp)
        attempts = 1 if before is None else before.attempts + 1
        rest_s = min(max(self._settings.backoff_ms / 1000, REST_S_MIN) * 2 ** min(attempts - 1, 10), REST_S_MAX)
        log.warning("cleaning failed", replica=str(kept.tp), reason=reason, again_in_s=rest_s)
        self._trouble[kept.tp] = _Trouble(kept, reason, attempts, self._ports.clock.monotonic() + rest_s)

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """Logs that are left alone, and why."""
        return {tp: t.reason for tp, t in self._trouble.items() if t.not_before == inf}


def _first_timestamp(segment: Segment) -> int:
    """The timestamp of a segment's first batch, -1 where it has none. Waits for the disk; raises CorruptData."""
    head = segment.disk.open(segment.path(layout.LOG)).read_at(HEADER_SIZE, 0)
    return parse_header(memoryview(head)).max_timestamp if len(head) == HEADER_SIZE else -1
