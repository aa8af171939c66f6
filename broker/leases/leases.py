"""The leases of one broker: the book, the log and files that each lease covers, and the events that end leases.

Rule 1: the book (leases/book.py) decides every change of a lease's state; this module does the work that follows.
Rule 2: when a lease ends, for whatever reason, its links and parts are removed and its log may delete segments again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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


class Carried(NamedTuple):
    """What lies beside the copy of a move: the log's decision, and the answers of the commits of these leases."""

    decision: KeptDecision | None
    answers: frozenset[str]


NOTHING_CARRIED = Carried(None, frozenset())


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
    """The broker's leases, by the rules at the head of this file. All methods are called on the event loop.

    It listens to the replicas (LeadershipListener) and to truncated logs by itself.
    """

    def __init__(self, ports: LeasePorts, broker_id: int) -> None:
        self.ports = ports
        self.broker_id = broker_id
        self.book = LeaseBook(ports.clock.now_ms(), lambda: passed_ms(ports.clock), self._ended, self._forgotten)
        self.decisions: dict[TopicPartition, KeptDecision] = {}
        self._carried: dict[TopicPartition, Carried] = {}
        self._leased_logs: dict[str, LeasedLog] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: TimerHandle | None = None
        ports.replicas.requests.add_listener(self)
        ports.store.on_cut, ports.store.on_moved = self.log_truncated, self.log_moved
        ports.store.before_move = self.carry

    # -- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Expire leases from now on, every TICK_S seconds."""
        self._timer = self.ports.timers.call_later(TICK_S, self.start)
        self.expire_due()

    async def close(self) -> None:
        """Wait for the running commits, then stop.

        Leases of jobs continue when the broker is back; those of the broker's own runs end.
        """
        if self._timer is not None:
            self._timer.cancel()
        await self.settle()
        for lease in self.book:
            if lease.run_id in OWN_RUNS:
                self.book.abort(lease, "the broker stops", self.ports.clock.now_ms())
        await self.settle()

    async def settle(self) -> None:
        """Wait until all work that was spawned is done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def expire_due(self) -> int:
        """End the leases whose time to live has passed; returns the wall-clock time used for that, in ms."""
        now_ms = self.ports.clock.now_ms()
        self.book.expire_due(now_ms)
        return now_ms

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine to its end, even if the caller stops waiting for it."""
        task = tasks.answering(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, LogyardError):
            tasks.failed("leases", error)  # the caller gets the error too, but may be gone

    # -- what others tell (the log store, and the replicas' LeadershipListener) ------------------------------------

    def log_truncated(self, tp: TopicPartition, offset: int) -> None:
        """End the leases and drop the decision that reach above `offset`, where a truncated log ends now."""
        self.book.lose_replica(tp, f"the log was truncated to {offset}", self.ports.clock.now_ms(), offset)
        decision = self.decisions.get(tp)
        if decision is not None and decision.range_end > offset:
            del self.decisions[tp]
            self._remove_decision(self.ports.store.logs.get(tp))

    def _remove_decision(self, replica: PartitionLog | None) -> None:
        if replica is not None:
            self._remove_later(f"{replica.directory}/{layout.LEASES}/{persistence.DECISION}")

    async def carry(self, replica: PartitionLog, copy: PartitionLog) -> None:
        """Before a move puts `copy` in the log's place: have it keep the log's decision, and no other, and the answers
        of its commits.

        Raises StorageError.
        """
        tp, decision = replica.tp, self.decisions.get(replica.tp)
        answers = self._answers_of(replica)
        source, target = (f"{log.directory}/{layout.LEASES}" for log in (replica, copy))

        def work() -> bool:
            persistence.write_answers(self.ports.disk, target, answers)
            return persistence.carry_decision(self.ports.disk, source, target, is_kept=decision is not None)

        is_there = await self.ports.run_blocking(work)
        ids = frozenset(lease.lease_id for lease in answers)
        self._carried[tp] = Carried(decision if is_there else None, ids)

    def _answers_of(self, replica: PartitionLog) -> list[Lease]:
        return [lease for lease in self.book.answers(replica.tp) if lease.is_of(replica.topic_id)]

    def log_moved(self, tp: TopicPartition) -> None:
        """A copy has taken the log's place: leases are lost with the log that they cover.

        The decision beside the copy counts if it is still the log's. A commit that was swapped in before the move goes
        on where the log lies now.
        """
        self.book.lose_replica(tp, "the replica moved to another log directory", self.ports.clock.now_ms())
        replica = self.ports.store.logs.current[tp]
        for lease in self.book.living(tp):
            self._leased_logs[lease.lease_id].log = replica
        carried = self._carried.pop(tp, NOTHING_CARRIED)
        if carried.decision is not self.decisions.get(tp):
            self.decisions.pop(tp, None)
            self._remove_decision(replica)
        if late := [lease for lease in self._answers_of(replica) if lease.lease_id not in carried.answers]:
            directory = f"{replica.directory}/{layout.LEASES}"
            self.spawn(self._tidy(directory, partial(persistence.write_answers, self.ports.disk, directory, late)))

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """This broker leads now: compact leases of earlier leader epochs are lost."""
        self.book.leader_changed(tp, leader_epoch, self.ports.clock.now_ms())

    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Another broker leads now; also called if the replica's log directory failed."""
        if self.ports.replicas.partition(tp) is None:
            self.book.lose_replica(tp, "its log directory failed", self.ports.clock.now_ms())
        else:
            self.book.leader_changed(tp, leader_epoch, self.ports.clock.now_ms())

    def on_deleted(self, tp: TopicPartition) -> None:
        """The replica is deleted, or moved to another directory."""
        self.decisions.pop(tp, None)
        self.book.lose_replica(tp, "the replica was deleted", self.ports.clock.now_ms())

    # -- holdings -------------------------------------------------------------------------------------------

    def add(self, leased: LeasedLog) -> None:
        """Add the log of a lease that was just granted, before its directory is made."""
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
        partition_log = self.ports.store.logs.get(lease.tp)
        if partition_log is not None and lease.state is LeaseState.COMMITTED:
            self._remove_later(persistence.ended_path(f"{partition_log.directory}/{layout.LEASES}", lease.lease_id))

    def remove_directory(self, leased: LeasedLog) -> None:
        """Remove a lease's directory in a thread; does not wait."""
        self._remove_later(leased.directory)

    def _remove_later(self, path: str) -> None:
        self.spawn(self._tidy(path, partial(persistence.remove_leftovers, self.ports.disk, [path])))

    async def _tidy(self, path: str, work: Callable[[], None]) -> None:
        try:
            await self.ports.run_blocking(work)
        except Exception as error:
            # It costs space, and the next start removes what no live lease needs; or a repeated commit its answer.
            log.warning("files of an ended lease could not be put in order", path=path, error=str(error))

    def replica(self, tp: TopicPartition) -> tuple[Partition, PartitionLog]:
        """Return this broker's replica and its log; raises LeaseError(unknown_partition)."""
        partition = self.ports.replicas.partition(tp)
        partition_log = self.ports.store.logs.get(tp)
        followed: object = None if partition is None else partition.log
        if partition is None or partition_log is None or followed is not partition_log:
            raise LeaseError("unknown_partition", 404, f"broker {self.broker_id} has no replica of {tp}")
        return partition, partition_log

    def leased_replica(self, lease: Lease) -> tuple[LeasedLog, Partition]:
        """Return the log of a living lease and its replica; raises LeaseError as `leased_log` does.

        Also raises `starting`: the broker has restarted, and the controller has not told it of the partition yet.
        """
        leased = self.leased_log(lease)
        partition = self.ports.replicas.partition(lease.tp)
        if partition is None:
            raise LeaseError(
                "starting", 503, f"{lease.tp}: the controller has not announced this replica yet, try again"
            )
        return leased, partition

    def leased_log(self, lease: Lease) -> LeasedLog:
        """Return the log of a live lease.

        Raises LeaseError: `unknown_lease`; or `lease_ended` if the log is no longer this replica's, which ends the
        lease.
        """
        leased = self._leased_logs.get(lease.lease_id)
        if leased is None or not leased.is_set_up:
            raise LeaseError("unknown_lease", 404, f"lease {lease.lease_id} is not known here: take a new one")
        partition = self.ports.replicas.partition(lease.tp)
        partition_log: object = self.ports.store.logs.get(lease.tp) if partition is None else partition.log
        if partition_log is not leased.log:
            self.book.lose(lease, "the replica is no longer here", self.ports.clock.now_ms())
            raise lease_ended(lease)
        return leased

    def remembered(self, lease_id: str) -> Lease:
        """Return a lease, living or ended; raises LeaseError(unknown_lease).

        What was committed in a topic that was deleted says nothing of the one that has its name now.
        """
        lease = self.book.find(lease_id)
        partition_log = self.ports.store.logs.get(lease.tp)
        if partition_log is not None and not lease.is_of(partition_log.topic_id):
            text = f"lease {lease_id} was of an earlier topic {lease.tp.topic}, which was deleted: take a new one"
            raise LeaseError("unknown_lease", 404, text)
        return lease

    def clean_offset(self, replica: PartitionLog) -> int:
        """Return the offset below which a log is clean, within the log's bounds."""
        return replica_status.clean_offset_of(replica, self.ports.store.cleaner_offset(replica.tp))

    def leadership(self, partition: Partition) -> dict[str, Any]:
        """Return leader, leader epoch, replicas and ISR, from the metadata cache and the replica itself."""
        known = self.ports.metadata.partition(partition.tp)
        return {
            "leader": NO_LEADER if known is None else known.leader,
            "is_leader": partition.is_leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas if known is None else known.replicas),
            "isr": [] if known is None else list(known.isr),
        }

    def is_ours(self, tp: TopicPartition) -> bool:
        """Whether a log belongs to a replica of this broker; true for all before the first UpdateMetadata."""
        known = self.ports.metadata.partition(tp)
        assigned = known is not None and self.broker_id in known.replicas
        return assigned or self.ports.replicas.partition(tp) is not None or self.ports.metadata.version == 0
