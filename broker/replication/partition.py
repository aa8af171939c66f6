"""One replica on this broker: its role, its log's offsets and its followers', and the operations on it.

Rule 1: leader epoch and partition epoch never decrease; an order with a smaller partition epoch changes nothing.
Rule 2: only a leader appends for clients, maintains the ISR and advances the high watermark by the rules of
watermarks.py; a follower takes its high watermark from its leader.
Rule 3: every method is synchronous and leaves the replica consistent. A method returns what has moved, and its caller
wakes the requests that wait; after an answer of the controller `ports.moved` does.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.append import AppendInfo
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.model import NO_LEADER, ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.records.batch import Bounds
from logyard.broker.replication import isr as isr_rules
from logyard.broker.replication import watermarks
from logyard.broker.replication.events import HIGH_WATERMARK, LeaderAndIsrPartition, PartitionFetch
from logyard.broker.replication.isr import Heartbeat, InSync, PendingChange, RemoteReplica, Settlement
from logyard.broker.replication.ports import IsrChangeResult, IsrChanges
from logyard.broker.replication.settings import Counters, ReplicaSettings


class Observer(Protocol):
    """A fetch session, which is told when a partition has something new for it."""

    def __hash__(self) -> int: ...
    def touch(self, tp: TopicPartition) -> None: ...


@dataclass(slots=True)
class PartitionPorts:
    """What all partitions of a broker share.

    `now_ms()` is a monotonic clock in ms. `moved(partition)` reports a high watermark that may have moved after an
    answer of the controller. `check_later(partition, at_ms)` has `advance_high_watermark` called at that time.
    """

    settings: ReplicaSettings
    counters: Counters
    now_ms: Callable[[], int]
    is_alive: Callable[[int], bool]
    isr_changes: IsrChanges
    moved: "Callable[[Partition], None]"
    check_later: "Callable[[Partition, int], None]"


class Partition:
    """One replica, by the rules at the head of this file. Other modules read its attributes; only it sets them."""

    __slots__ = (
        "adding",
        "controller_epoch",
        "epoch_start",
        "is_leader",
        "is_stopped",
        "isr",
        "leader",
        "leader_epoch",
        "leaves_isr",
        "log",
        "noted_start",
        "observers",
        "partition_epoch",
        "ports",
        "remotes",
        "removing",
        "replicas",
        "tp",
    )

    def __init__(self, tp: TopicPartition, ports: PartitionPorts) -> None:
        self.tp = tp
        self.ports = ports
        self.log: PartitionLog | None = None
        self.is_leader = False
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.is_stopped = False  # by StopReplica, until the next order
        self.leaves_isr = False  # as a follower: its leader is to remove it from the ISR
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.epoch_start = -1
        self.noted_start = 0  # the log start offset that fetch sessions were last told
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.isr = InSync()
        self.remotes: dict[int, RemoteReplica] = {}
        self.observers: dict[Observer, None] = {}

    # Orders of the controller (facts §9)

    def lead(self, order: LeaderAndIsrPartition, log: PartitionLog) -> bool:
        """Become (or stay) leader; returns whether this broker did not lead before.

        A new leader epoch is recorded with its start offset in the log, even if nothing is appended in it.
        """
        if order.partition_epoch < self.partition_epoch:
            return False
        new_leader = not self.is_leader
        self.log = log
        self._assign(order)
        self.isr.commit(order.isr)
        if order.leader_epoch > self.leader_epoch:
            self._start_epoch(order, log, new_leader)
        self.leader = order.leader
        self.is_leader, self.is_stopped = True, False
        self.partition_epoch = order.partition_epoch
        return new_leader

    def _start_epoch(self, order: LeaderAndIsrPartition, log: PartitionLog, new_leader: bool) -> None:
        start = log.log_end_offset
        log.epochs.assign(order.leader_epoch, start)
        now = self.ports.now_ms()
        for remote in self.remotes.values():
            remote.start_epoch(now, start, in_isr=remote.id in self.isr.maximal, new_leader=new_leader)
        self.leader_epoch = order.leader_epoch
        self.epoch_start = start

    def follow(self, order: LeaderAndIsrPartition, log: PartitionLog) -> bool:
        """Become (or stay) follower; returns whether fetching has to restart: in a new epoch, or after a stop."""
        if order.partition_epoch < self.partition_epoch:
            return False
        restarts = order.leader_epoch > self.leader_epoch or self.is_stopped
        self.log = log
        self.is_leader = self.is_stopped = False
        self.leader = order.leader
        self.leader_epoch = order.leader_epoch
        self.epoch_start = -1
        self.partition_epoch = order.partition_epoch
        self._assign(order)
        self.remotes.clear()
        self.isr.commit(())
        return restarts

    def _assign(self, order: LeaderAndIsrPartition) -> None:
        self.controller_epoch = order.controller_epoch
        self.replicas = order.replicas
        self.adding = order.adding
        self.removing = order.removing
        me = self.ports.settings.broker_id
        known = self.remotes
        self.remotes = {r: known.get(r) or RemoteReplica(r) for r in order.replicas if r != me}

    def take_offline(self) -> None:
        """Stop leading and reading: the log's directory failed, or the replica is being deleted."""
        self.is_leader = False
        self.log = None
        self.remotes.clear()
        self.isr.commit(())

    # Reading state

    @property
    def topic_id(self) -> TopicId:
        """The topic id in the log's partition.metadata; all zeros if it has none."""
        return (self.log.topic_id if self.log is not None else None) or ZERO_TOPIC_ID

    @property
    def min_isr(self) -> int:
        assert self.log is not None
        return watermarks.effective_min_isr(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.isr.committed) < self.min_isr

    @property
    def is_at_min_isr(self) -> bool:
        return self.is_leader and len(self.isr.committed) == self.min_isr

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self.isr.committed) < len(self.replicas)

    def readable_log(self, leader_epoch: int, only_leader: bool) -> PartitionLog:
        """Return the log for a reader that expects `leader_epoch` (-1: any).

        Raises ApiError: FENCED_LEADER_EPOCH (`leader_epoch` is older than ours), UNKNOWN_LEADER_EPOCH (newer),
        NOT_LEADER_OR_FOLLOWER (no log here, or `only_leader` and another broker leads); facts §10.
        """
        if leader_epoch >= 0 and leader_epoch != self.leader_epoch:
            older = leader_epoch < self.leader_epoch
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self.log
        if log is None or (only_leader and not self.is_leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def follower(self, broker_id: int, leader_epoch: int) -> RemoteReplica:
        """Return the follower with that id.

        Raises ApiError for a broker that is not assigned (facts §22): UNKNOWN_LEADER_EPOCH if it named an epoch, as it
        may know a newer assignment; otherwise NOT_LEADER_OR_FOLLOWER.
        """
        remote = self.remotes.get(broker_id)
        if remote is None:
            named = leader_epoch >= 0
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH if named else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return remote

    # Produce

    def append(
        self, batches: memoryview, acks: int, now_ms: int, origin: Origin, validated_by: Bounds | None = None
    ) -> AppendInfo:
        """Append for a client or coordinator; the high watermark may move at once. `now_ms` is wall-clock time.

        `validated_by` are the bounds by which a thread has validated the batches, None if none has.
        Raises ApiError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (for acks=-1; nothing is written), and as
        `PartitionLog.append_as_leader` does.
        """
        log = self.log
        if log is None or not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and len(self.isr.committed) < self.min_isr:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.tp}: {len(self.isr.committed)} in sync, {self.min_isr} needed",
            )
        end = log.log_end_offset
        for remote in self.remotes.values():
            remote.settle_idle(end)
        appended = log.append_as_leader(
            batches, self.leader_epoch, now_ms=now_ms, origin=origin, validated_by=validated_by
        )
        self.advance_high_watermark()
        return appended

    def acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Return the answer to acks=all for records that end before `required_offset`; None: not replicated yet.

        NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND, or NOT_LEADER_OR_FOLLOWER.
        """
        log = self.log
        if log is None or not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset:
            return None
        enough = len(self.isr.maximal) >= self.min_isr
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def advance_high_watermark(self) -> bool:
        """Move the leader's high watermark as far as the rules allow; returns whether it moved."""
        log = self.log
        if log is None or not self.is_leader:
            return False
        current, end = log.high_watermark, log.log_end_offset
        if current == end or len(self.isr.committed) < self.min_isr:
            return False
        committed = end
        if self.remotes:
            ports, members = self.ports, self.isr.maximal
            remotes, lag = self.remotes.values(), ports.settings.lag_time_max_ms
            committed = watermarks.leader_high_watermark(
                current, end, remotes, members, ports.now_ms, lag, ports.is_alive
            )
            if committed < end and len(members) <= len(remotes):
                until = watermarks.held_until(end, remotes, members, ports.now_ms(), lag, ports.is_alive)
                if until is not None:
                    ports.check_later(self, until)
        if committed <= current:
            return False
        log.set_high_watermark(committed)
        return True

    def broker_gone(self, broker_id: int) -> bool:
        """Stop waiting for a dead broker to join the ISR; returns whether the high watermark moved."""
        remote = self.remotes.get(broker_id)
        if remote is None:
            return False
        remote.is_refused = False
        return self.advance_high_watermark()

    # Followers

    def record_fetch(
        self,
        remote: RemoteReplica,
        ask: PartitionFetch,
        now_ms: int,
        leader_end: int,
        beat: Heartbeat | None,
        epoch: int,
    ) -> bool:
        """Record a follower's fetch, whose offset is its log end; returns whether a watermark may have moved.

        `leader_end` is this log's end before the read; `epoch` is the follower's broker epoch, -1 if unknown.
        """
        before = remote.log_end_offset
        start_before = remote.log_start_offset
        remote.record_fetch(ask.offset, ask.log_start_offset, now_ms, leader_end, epoch)
        remote.heartbeat = beat
        if remote.id not in self.isr.maximal:
            self.expand_isr(remote)
        moved = remote.log_start_offset != start_before
        if before != remote.log_end_offset:
            moved = self.advance_high_watermark() or moved
        return moved

    def follow_leader(self, leader_high_watermark: int, leader_start: int) -> bool:
        """Take the leader's high watermark and log start after an append; returns whether the watermark moved."""
        log = self.log
        assert log is not None, "a follower has a log"
        before = log.high_watermark
        after = watermarks.follower_high_watermark(leader_high_watermark, log.log_start_offset, log.log_end_offset)
        if after != before:
            log.set_high_watermark(after)
        if leader_start > log.log_start_offset:
            log.advance_log_start(min(leader_start, log.high_watermark))
        return after != before

    # The ISR (facts §10, §22)

    def expand_isr(self, remote: RemoteReplica) -> None:
        """Ask the controller to add `remote` to the ISR, if it qualifies and no change is pending."""
        log = self.log
        if log is None or not self.is_leader or self.isr.pending is not None or remote.id in self.isr.committed:
            return
        if isr_rules.may_join(remote, log.high_watermark, self.epoch_start, self.ports.is_alive):
            self._submit(self.isr.propose_adding(remote.id))

    def shrink_isr(self) -> None:
        """Ask the controller to remove the followers that have fallen behind; called periodically."""
        log = self.log
        if log is None or not self.is_leader or self.isr.pending is not None:
            return
        ports = self.ports
        leaving = isr_rules.out_of_sync(
            self.isr.committed,
            ports.settings.broker_id,
            self.remotes,
            log.log_end_offset,
            ports.now_ms(),
            ports.settings.lag_time_max_ms,
        )
        if leaving:
            self._submit(self.isr.propose_removing(leaving))

    def _submit(self, change: PendingChange) -> None:
        epochs = {r: self.remotes[r].broker_epoch if r in self.remotes else -1 for r in change.isr}
        self.ports.isr_changes.submit(
            self.tp,
            self.topic_id if self.topic_id != ZERO_TOPIC_ID else None,
            self.leader_epoch,
            change.isr,
            self.partition_epoch,
            lambda result: self._settle(change, result),
            epochs,
        )

    def _settle(self, change: PendingChange, result: IsrChangeResult) -> None:
        if self.isr.pending is not change:
            return  # a LeaderAndIsr arrived first and ended this change
        counters = self.ports.counters
        match isr_rules.settle(result, self.leader_epoch, self.partition_epoch):
            case Settlement.COMMIT:
                counters.isr_expands += change.expands
                counters.isr_shrinks += not change.expands
                self.partition_epoch = result.partition_epoch
                self._committed(result.isr)
            case Settlement.WITHDRAW:
                counters.failed_isr_updates += 1
                self._refused(change)
            case Settlement.RETRY:
                counters.failed_isr_updates += 1
                self._submit(change)
            case Settlement.WAIT | Settlement.IGNORE:
                counters.failed_isr_updates += 1

    def _refused(self, change: PendingChange) -> None:
        self.isr.withdraw()
        for broker_id in change.maximal.difference(self.isr.committed):
            if broker_id in self.remotes:
                self.remotes[broker_id].is_refused = True
        self.advance_high_watermark()
        self.ports.moved(self)

    def _committed(self, isr: Iterable[int]) -> None:
        self.isr.commit(isr)
        for remote in self.remotes.values():
            remote.is_refused = False
        self.advance_high_watermark()
        self.ports.moved(self)

    # DeleteRecords

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Advance the log's start to `offset` (-1: the high watermark); returns (the new start, the low watermark).

        Raises ApiError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (cleanup.policy has no delete), OFFSET_OUT_OF_RANGE
        (above the high watermark).
        """
        log = self.log
        if log is None or not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.config.deletes:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{self.tp}: cleanup.policy does not contain delete")
        wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= log.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp}: {wanted} is beyond the high watermark")
        if wanted > log.log_start_offset:
            log.advance_log_start(wanted)
        return wanted, self.low_watermark()

    def low_watermark(self) -> int:
        """Return the smallest log start offset of this leader's live replicas.

        Raises ApiError(NOT_LEADER_OR_FOLLOWER) on a follower.
        """
        if self.log is None or not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return watermarks.low_watermark(self.log.log_start_offset, self.remotes.values(), self.ports.is_alive)
