"""The leases this broker has given out: the book, what each one holds, and what ends them.

Rule 1: the book (leases/book.py) decides every move between states; here things are done about it.
Rule 2: what a lease holds (links, parts, the pause of retention) goes as it reaches an end state, whatever led there.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.clock import Clock, passed_ms
from logyard.broker.errors import LogyardError
from logyard.broker.event_loop import RunBlocking, TimerHandle, Timers
from logyard.broker.leases import persistence, replica_status
from logyard.broker.leases.book import OWN_RUNS, Lease, LeaseBook, LeaseError, LeaseState, lease_ended
from logyard.broker.leases.decisions import KeptDecision
from logyard.broker.leases.leased_log import LeasedLog
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.store import LogStore
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import NO_LEADER, TopicPartition
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.replicas import Replicas

TICK_S = 1.0

log = structlog.get_logger("logyard.leases")


@dataclass(frozen=True, slots=True)
class LeasePorts:
    """What the leases work with; `new_id` gives 32 hex characters."""

    store: LogStore
    replicas: Replicas
    metadata: MetadataCache
    disk: Disk
    clock: Clock
    timers: Timers
    run_blocking: RunBlocking
    new_id: Callable[[], str]


class Leases:
    """See the head of this file. Everything happens on the event loop."""

    def __init__(self, ports: LeasePorts, broker_id: int) -> None:
        self.ports = ports
        self.broker_id = broker_id
        self.book = LeaseBook(ports.clock.now_ms(), lambda: passed_ms(ports.clock), self._ended, self._forgotten)
        self.decisions: dict[TopicPartition, KeptDecision] = {}
        self._leased_logs: dict[str, LeasedLog] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: TimerHandle | None = None
        ports.replicas.add_listener(self)
        ports.store.on_cut = self.log_truncated

    # -- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to expire leases."""
        self._timer = self.ports.timers.call_later(TICK_S, self.start)
        self.expire_due()

    async def close(self) -> None:
        """Stop, after the commits that are under way: jobs' leases go on when the broker is back, the cleaner's end."""
        if self._timer is not None:
            self._timer.cancel()
        await self.settle()
        for lease in self.book:
            if lease.run_id in OWN_RUNS:
                self.book.abort(lease, "the broker stops", self.ports.clock.now_ms())
        await self.settle()

    async def settle(self) -> None:
        """Wait for all that was spawned."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def expire_due(self) -> int:
        """The time, once whatever ran out by then has expired."""
        now_ms = self.ports.clock.now_ms()
        self.book.expire_due(now_ms)
        return now_ms

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Have something done whoever may stop waiting for it."""
        task = tasks.answering(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, LogyardError):
            tasks.failed("leases", error)  # whoever waits gets it too, but they may have gone

    # -- what others tell (the log store, and the replicas' LeadershipListener) ------------------------------------

    def log_truncated(self, tp: TopicPartition, offset: int) -> None:
        """A log was truncated and now ends at `offset`."""
        self.book.lose_replica(tp, f"the log was truncated to {offset}", self.ports.clock.now_ms(), offset)
        kept, replica = self.decisions.get(tp), self.ports.store.get(tp)
        if kept is not None and kept.range_end > offset:
            del self.decisions[tp]
            if replica is not None:
                self._remove_later(f"{replica.directory}/{layout.LEASES}/{persistence.DECISION}")

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """What was decided may not be what the new leader holds."""
        self.book.leader_changed(tp, leader_epoch, self.ports.clock.now_ms())

    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """A replica whose directory failed is told of in this way as well."""
        if self.ports.replicas.partition(tp) is None:
            self.book.lose_replica(tp, "its log directory failed", self.ports.clock.now_ms())
        else:
            self.book.leader_changed(tp, leader_epoch, self.ports.clock.now_ms())

    def on_deleted(self, tp: TopicPartition) -> None:
        """The replica is deleted or moved away."""
        self.decisions.pop(tp, None)
        self.book.lose_replica(tp, "the replica was deleted", self.ports.clock.now_ms())

    # -- holdings -------------------------------------------------------------------------------------------

    def add(self, leased: LeasedLog) -> None:
        """A lease was opened; its directory is about to be made."""
        self._leased_logs[leased.lease.lease_id] = leased

    def _ended(self, lease: Lease) -> None:
        log.info(
            "lease ended",
            lease=lease.lease_id,
            replica=str(lease.tp),
            run=lease.run_id,
            purpose=lease.purpose.value,
            state=lease.state.value,
            reason=lease.reason,
        )
        leased = self._leased_logs.pop(lease.lease_id, None)
        if leased is not None:
            leased.log.segments.release_hold(lease.lease_id)
            if leased.is_set_up:
                self.remove_directory(leased)

    def _forgotten(self, lease: Lease) -> None:
        kept = self.ports.store.get(lease.tp)
        if kept is not None and lease.state is LeaseState.COMMITTED:
            self._remove_later(persistence.ended_path(f"{kept.directory}/{layout.LEASES}", lease.lease_id))

    def remove_directory(self, leased: LeasedLog) -> None:
        """Have a lease's directory removed."""
        self._remove_later(leased.directory)

    def _remove_later(self, path: str) -> None:
        self.spawn(self._remove(path))

    async def _remove(self, path: str) -> None:
        try:
            await self.ports.run_blocking(partial(persistence.remove_leftovers, self.ports.disk, [path]))
        except Exception as error:
            # Only space is lost, until the next start removes what no living lease needs.
            log.warning("what a lease leaves is not removed", path=path, error=str(error))

    def replica(self, tp: TopicPartition) -> tuple[Partition, PartitionLog]:
        """Return this broker's replica; raises LeaseError(unknown_partition)."""
        partition = self.ports.replicas.partition(tp)
        kept = self.ports.store.get(tp)
        followed: object = None if partition is None else partition.log
        if partition is None or kept is None or followed is not kept:
            raise LeaseError("unknown_partition", 404, f"broker {self.broker_id} has no replica of {tp}")
        return partition, kept

    def leased_replica(self, lease: Lease) -> tuple[LeasedLog, Partition]:
        """A living lease's log and its replica; loses the lease where the replica is not what it was.

        Raises LeaseError: `lease_ended`, or `starting` where a restarted broker has not heard of the partition yet.
        """
        leased = self.leased_log(lease)
        partition = self.ports.replicas.partition(lease.tp)
        if partition is None:
            raise LeaseError("starting", 503, f"{lease.tp}: the controller has not told of it yet, try again")
        return leased, partition

    def leased_log(self, lease: Lease) -> LeasedLog:
        """The log of a living lease; loses the lease where the replica is not what it was."""
        leased = self._leased_logs.get(lease.lease_id)
        if leased is None or not leased.is_set_up:
            raise LeaseError("unknown_lease", 404, f"lease {lease.lease_id} is not known here: take a new one")
        partition = self.ports.replicas.partition(lease.tp)
        kept: object = self.ports.store.get(lease.tp) if partition is None else partition.log
        if kept is not leased.log:
            self.book.lose(lease, "the replica is not here any more", self.ports.clock.now_ms())
            raise lease_ended(lease)
        return leased

    def clean_offset(self, replica: PartitionLog) -> int:
        """Up to where a log is cleaned, within its bounds."""
        return replica_status.clean_offset_of(replica, self.ports.store.cleaner_offset(replica.tp))

    def leadership(self, partition: Partition) -> dict[str, Any]:
        """What the metadata cache and the replica itself believe now."""
        known = self.ports.metadata.partition(partition.tp)
        return {
            "leader": NO_LEADER if known is None else known.leader,
            "is_leader": partition.is_leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas if known is None else known.replicas),
            "isr": [] if known is None else list(known.isr),
        }

    def is_ours(self, tp: TopicPartition) -> bool:
        """Whether a log belongs to a replica of this broker; before the first metadata every one does."""
        known = self.ports.metadata.partition(tp)
        assigned = known is not None and self.broker_id in known.replicas
        return assigned or self.ports.replicas.partition(tp) is not None or self.ports.metadata.version == 0
