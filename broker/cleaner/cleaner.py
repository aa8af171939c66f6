"""The built-in cleaner (`log.cleaner.enable`): takes a lease on a log, has a child process clean it, commits the parts.

Rule 1: lease, parts and commit are those of a Spark job (docs/leases.md). So a log that a job compacts is skipped, and
        a commit is checked in the same way.
Rule 2: a log that cannot be cleaned (a damaged batch) is marked uncleanable, with the reason, until it is deleted or
        the broker starts again. After other failures (no space, a lost lease) it is tried again later.
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
from logyard.broker.cleaner import engines, own_run, selection
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
# An idle worker is kept this long: the next log then needs no new process, and no loading of compiled loops.
WARM_S = 60.0
REST_S_MIN = 1.0
REST_S_MAX = 600.0

log = structlog.get_logger("logyard.cleaner")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CleanerPorts:
    """What the cleaner works with.

    `clean_offset` is the offset below which a log is clean, `is_held` tells whether a run compacts a replica.
    """

    logs: Callable[[], list[PartitionLog]]
    find: Callable[[TopicPartition], PartitionLog | None]
    clean_offset: Callable[[PartitionLog], int]
    is_held: Callable[[TopicPartition], bool]
    lease_service: LeaseService
    clock: Clock
    run_blocking: RunBlocking
    open_worker: Callable[[], CleaningWorker]


@dataclass(slots=True)
class _Failure:
    """A log that could not be cleaned: how often in a row, and when it may be tried again (monotonic seconds).

    `not_before` is infinite for a log that is uncleanable.
    """

    log: PartitionLog
    reason: str
    attempts: int
    not_before: float


class LogCleaner:
    """The cleaner, by the rules at the head of this file. Everything except the cleaning itself runs on the event
    loop."""

    def __init__(self, ports: CleanerPorts, settings: CleanerSettings) -> None:
        self._ports = ports
        self.settings = settings
        self._workers: dict[int, CleaningWorker] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._at_work: set[TopicPartition] = set()
        self._failures: dict[TopicPartition, _Failure] = {}
        self._changed = asyncio.Event()
        self._running = False
        self.cleaned = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.dirtiest = 0.0
        self.slowest_s = 0.0

    # -- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Clean logs from now on."""
        if not engines.is_compiled():
            log.info("the cleaner works in plain Python, ten times slower: pip install 'logyard[cleaner]'")
        self._running = True
        self._start_workers()

    def configure(self, settings: CleanerSettings) -> None:
        """Use these settings: idle workers look for work at once, running work continues at the new rate."""
        if settings == self.settings:
            return
        self.settings = settings
        for worker in self._workers.values():
            worker.pace(settings.bytes_per_second_each)
        self._changed.set()
        self._changed = asyncio.Event()
        if self._running:
            self._start_workers()

    def _start_workers(self) -> None:
        for number in range(self.settings.threads):
            if number not in self._tasks or self._tasks[number].done():
                self._tasks[number] = tasks.keep("cleaner", partial(self._work, number))

    async def close(self) -> None:
        """Stop, also during a cleaning; the leases are ended by Leases.close."""
        self._running = False
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def gauges(self) -> dict[str, int]:
        """Kafka's gauges of a cleaner (kafka.log:type=LogCleaner, LogCleanerManager)."""
        return {
            "cleaner_uncleanable_partitions_count": len(self.uncleanable),
            "cleaner_max_dirty_percent": round(100 * self.dirtiest),
            "cleaner_recopy_percent": round(100 * self.bytes_written / self.bytes_read) if self.bytes_read else 0,
            "cleaner_max_clean_time_secs": round(self.slowest_s),
            "cleaner_logs_cleaned": self.cleaned,
        }

    async def _work(self, number: int) -> None:
        # Again where the setting was raised while the process of this worker ended.
        while number < self.settings.threads:
            await self._work_on(number)

    async def _work_on(self, number: int) -> None:
        worker = self._workers[number] = self._ports.open_worker()
        worked_at = -inf
        try:
            while number < self.settings.threads:
                busy = False
                try:
                    busy = await self.clean_next(worker)
                except Exception as error:  # otherwise a stopped cleaner might go unnoticed for weeks
                    log.error("the cleaner failed", error=repr(error), exc_info=error)
                now = self._ports.clock.monotonic()
                if busy:
                    worked_at = now
                    continue
                if now - worked_at >= WARM_S:
                    await worker.end()
                await self._rest()
        finally:
            del self._workers[number]
            await worker.end()

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.backoff_ms / 1000):
                await self._changed.wait()

    # -- choosing -------------------------------------------------------------------------------------------

    async def clean_next(self, worker: CleaningWorker) -> bool:
        """Clean the log that needs it most; returns whether there was one to clean."""
        found = selection.next_to_clean(await self._candidates())
        if found is None:
            return False
        if found.tp in self._at_work:
            return True  # another worker has begun with it: look again
        self._at_work.add(found.tp)
        try:
            await self._clean(found, worker)
        finally:
            self._at_work.discard(found.tp)
        return True

    async def _candidates(self) -> list[Candidate]:
        found: list[Candidate] = []
        self._forget_deleted_logs()
        for number, partition_log in enumerate(self._ports.logs(), start=1):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            if self._may_be_cleaned(partition_log):
                try:
                    found.append(await self._judge(partition_log))
                except (LogyardError, FileNotFoundError):
                    pass  # the log has failed, which is reported when it is next used
                except Exception as bug:
                    self._not_cleaned(partition_log, bug)
        self.dirtiest = max((candidate.ratio for candidate in found), default=0.0)
        return found

    def _may_be_cleaned(self, partition_log: PartitionLog) -> bool:
        if not partition_log.config.compacted or partition_log.failure is not None or partition_log.is_future:
            return False
        if partition_log.tp in self._at_work or self._ports.is_held(partition_log.tp):
            return False
        failure = self._failures.get(partition_log.tp)
        return failure is None or failure.not_before <= self._ports.clock.monotonic()

    async def _judge(self, partition_log: PartitionLog) -> Candidate:
        now_ms = self._ports.clock.now_ms()
        clean_offset = self._ports.clean_offset(partition_log)
        end_offset = cleanable_end_of(partition_log, clean_offset, now_ms)
        first_dirty_at_ms = -1
        if partition_log.config.max_compaction_lag_ms < LONG_MAX and end_offset > clean_offset:
            first = partition_log.segments[partition_log.segments.number_of(clean_offset)]
            first_dirty_at_ms = await self._ports.run_blocking(partial(_first_timestamp, first))
        return selection.judge(partition_log, clean_offset, end_offset, first_dirty_at_ms, now_ms)

    def _forget_deleted_logs(self) -> None:
        for tp, failure in list(self._failures.items()):
            if self._ports.find(tp) is not failure.log:
                del self._failures[tp]

    # -- cleaning -------------------------------------------------------------------------------------------

    async def _clean(self, found: Candidate, worker: CleaningWorker) -> None:
        began = self._ports.clock.monotonic()
        partition_log = self._ports.find(found.tp)
        if partition_log is None:
            return
        try:
            done = await self._clean_leased(found.tp, worker)
        except Exception as error:
            if (
                self._ports.find(found.tp) is partition_log
            ):  # otherwise it was deleted or moved meanwhile, and the failure concerns no log
                self._not_cleaned(partition_log, error)
        else:
            self._failures.pop(found.tp, None)
            seconds = self._ports.clock.monotonic() - began
            self.slowest_s = max(self.slowest_s, seconds)
            self.cleaned += 1
            log.info(
                "log cleaned", replica=str(found.tp), seconds=round(seconds, 2), dirty=round(found.ratio, 2), **done
            )

    async def _clean_leased(self, tp: TopicPartition, worker: CleaningWorker) -> Json:
        settings = self.settings
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

    def _not_cleaned(self, partition_log: PartitionLog, error: Exception) -> None:
        if isinstance(error, CorruptData):
            self._give_up(partition_log, str(error))
            return
        if not isinstance(error, LeaseError | StorageError | WorkerDied):
            # A bug: reported, and tried again later. If it were tried at once, no other log would be cleaned.
            tasks.failed("cleaner", error)
        self._try_later(partition_log, str(error) or repr(error))

    def _give_up(self, partition_log: PartitionLog, reason: str) -> None:
        log.error(
            "log cannot be cleaned: it is skipped until the broker starts again",
            replica=str(partition_log.tp),
            reason=reason,
        )
        self._failures[partition_log.tp] = _Failure(partition_log, reason, 1, inf)

    def _try_later(self, partition_log: PartitionLog, reason: str) -> None:
        """Wait twice as long after each failure in a row."""
        before = self._failures.get(partition_log.tp)
        attempts = 1 if before is None else before.attempts + 1
        rest_s = min(max(self.settings.backoff_ms / 1000, REST_S_MIN) * 2 ** min(attempts - 1, 10), REST_S_MAX)
        log.warning("cleaning failed", replica=str(partition_log.tp), reason=reason, again_in_s=rest_s)
        self._failures[partition_log.tp] = _Failure(
            partition_log, reason, attempts, self._ports.clock.monotonic() + rest_s
        )

    @property
    def failures(self) -> Mapping[TopicPartition, str]:
        """The logs whose last cleaning failed, each with the reason."""
        return {tp: failure.reason for tp, failure in self._failures.items()}

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """The logs that cannot be cleaned, each with the reason."""
        return {tp: failure.reason for tp, failure in self._failures.items() if failure.not_before == inf}


def _first_timestamp(segment: Segment) -> int:
    """Return the timestamp of a segment's first batch, -1 if it has none. Waits for the disk; raises CorruptData."""
    head = segment.disk.open(segment.path(layout.LOG)).read_at(HEADER_SIZE, 0)
    return parse_header(memoryview(head)).max_timestamp if len(head) == HEADER_SIZE else -1
