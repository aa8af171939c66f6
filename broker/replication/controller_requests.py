"""LeaderAndIsr, StopReplica and UpdateMetadata: the controller's requests, carried out (facts §9).

Rule 1: a request with an earlier broker epoch than ours is meant for an earlier run of this broker
(STALE_BROKER_EPOCH); one with an earlier controller epoch than the last seen is from a former controller
(STALE_CONTROLLER_EPOCH). So is one with a leader epoch that is known, unless it has a stopped follower go on.
Rule 2: fetchers stop before a replica changes its role and start after it; requests that wait on it are woken in
between.
Rule 3: a deleted replica is created again only for a later leader epoch, or for another topic of its name: a request
that was sent twice may arrive again after the deletion.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from logyard.broker import tasks
from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.metadata.large_update import LargeUpdate
from logyard.broker.metadata.updates import UpdateMetadata
from logyard.broker.model import NO_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.replication.events import (
    EPOCH_DURING_DELETE,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    PartitionErrors,
    StopReplica,
    StopReplicaPartition,
)
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.log_errors import code_of
from logyard.broker.replication.missing_logs import MissingLogs
from logyard.broker.replication.partition import Partition

HURRY_S = 0.025
DELETED_MAX = 100_000

log = structlog.get_logger("logyard.replication")


class Fetchers(Protocol):
    """The fetchers of followed partitions (follower/fetcher_manager.py)."""

    def start(self, partitions: Iterable[Partition]) -> None:
        """Fetch these from their leaders, from the end of their logs."""
        ...

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these; answers in flight are dropped."""
        ...

    def refresh_topic_ids(self, partitions: Iterable[Partition]) -> None:
        """Their topic ids changed."""
        ...

    @property
    def failed_count(self) -> int:
        """The number of partitions that should be fetched and are not."""
        ...


class LeadershipListener(Protocol):
    """Is told of leadership of internal topics' partitions: the coordinators."""

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None: ...
    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None: ...
    def on_deleted(self, tp: TopicPartition) -> None: ...


class ControllerRequests:
    """Carries out LeaderAndIsr, StopReplica and UpdateMetadata. `broker_epoch()` is called for every request."""

    def __init__(
        self,
        hosted: Hosted,
        fetchers: Fetchers,
        broker_epoch: Callable[[], int],
        hurry: Callable[[Iterable[int]], None],
    ) -> None:
        self._hosted = hosted
        self._hurry = hurry
        self._fetchers = fetchers
        self._broker_epoch = broker_epoch
        self._listeners: list[LeadershipListener] = []
        self.missing_logs = MissingLogs(hosted)
        self._deleted: dict[tuple[TopicId, int], int] = {}  # leader epochs at deletion, oldest first

    def add_listener(self, listener: LeadershipListener) -> None:
        """Tell `listener` when this broker starts or stops leading a partition, or loses it."""
        self._listeners.append(listener)

    def admit(self, request: LeaderAndIsr | StopReplica | UpdateMetadata) -> ErrorCode:
        """Return NONE for a current request, else STALE_BROKER_EPOCH or STALE_CONTROLLER_EPOCH.

        The controller epoch of an admitted request counts from now on.
        """
        return self._fence(request.broker_epoch, request.controller_epoch)

    def _fence(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        if NO_EPOCH < broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self._hosted.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._hosted.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def update_metadata(self, update: UpdateMetadata) -> ErrorCode:
        """Apply UpdateMetadata to the cache, unless `admit` refuses it."""
        error = self._fence(update.broker_epoch, update.controller_epoch)
        if error is ErrorCode.NONE:
            self._hosted.metadata.apply_update(update)
        return error

    def begin_update(self) -> LargeUpdate:
        """Begin an update of the cache that is prepared in portions."""
        return LargeUpdate(self._hosted.metadata)

    def finish_update(self, update: UpdateMetadata, prepared: LargeUpdate) -> ErrorCode:
        """Put it in its place, unless a newer controller has spoken, or this broker has registered anew meanwhile."""
        error = self.admit(update)
        if error is ErrorCode.NONE:
            prepared.put_in_place(update)
        return error

    # LeaderAndIsr

    def become_leader_or_follower(self, request: LeaderAndIsr) -> PartitionErrors:
        """Carry out LeaderAndIsr (facts §9); `admit` may refuse the whole request."""
        error = self._fence(request.broker_epoch, request.controller_epoch)
        if error is not ErrorCode.NONE:
            return PartitionErrors(error)
        errors: dict[TopicPartition, ErrorCode] = {}
        leading: list[tuple[Partition, LeaderAndIsrPartition]] = []
        following: list[tuple[Partition, LeaderAndIsrPartition]] = []
        renamed: list[Partition] = []
        for order in request.partitions:
            self.missing_logs.forget(order.tp)
            topic_id = request.topic_ids.get(order.tp.topic, ZERO_TOPIC_ID)
            verdict = self._judge(order, topic_id, renamed)
            errors[order.tp] = verdict if verdict is not None else ErrorCode.NONE
            if verdict is None:
                partition = self._hosted.partitions.get(order.tp) or Partition(order.tp, self._hosted.ports)
                role = leading if order.leader == self._hosted.settings.broker_id else following
                role.append((partition, order))
        self._make_leaders(leading, request, errors)
        self._make_followers(following, request, errors)
        if renamed:
            self._fetchers.refresh_topic_ids(renamed)
        return PartitionErrors(ErrorCode.NONE, errors, request.topic_ids)

    def _judge(self, order: LeaderAndIsrPartition, topic_id: TopicId, renamed: list[Partition]) -> ErrorCode | None:
        """Return None for an order to be carried out, else the error to answer."""
        hosted = self._hosted
        if order.tp in hosted.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = hosted.partitions.get(order.tp)
        known_id = partition.topic_id if partition is not None else ZERO_TOPIC_ID
        if ZERO_TOPIC_ID not in (known_id, topic_id) and known_id != topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        current = partition.leader_epoch if partition is not None else NO_EPOCH
        if partition is None and order.leader_epoch <= self._deleted.get((topic_id, order.tp.partition), NO_EPOCH):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if order.leader_epoch > current:
            mine = hosted.settings.broker_id in order.replicas
            return None if mine else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if order.leader_epoch < current or partition is None or partition.log is None:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._resumes(order, partition):
            return None
        if topic_id != ZERO_TOPIC_ID and known_id == ZERO_TOPIC_ID:
            return self._adopt(order, partition, partition.log, topic_id, renamed)
        if topic_id == ZERO_TOPIC_ID and known_id != ZERO_TOPIC_ID and not partition.is_leader:
            renamed.append(partition)
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _resumes(self, order: LeaderAndIsrPartition, partition: Partition) -> bool:
        """Whether an order of the same leader epoch has a follower go on that was stopped.

        Its log was refused file descriptors: it is not in the ISR, so its stop and its return change no epoch.
        """
        me = self._hosted.settings.broker_id
        return partition.is_stopped and not partition.is_leader and order.leader != me and me in order.replicas

    def _adopt(
        self,
        order: LeaderAndIsrPartition,
        partition: Partition,
        log: PartitionLog,
        topic_id: TopicId,
        renamed: list[Partition],
    ) -> ErrorCode:
        """Store a topic's id that becomes known late; nothing else changes."""
        try:
            log.assign_topic_id(topic_id)
        except (StorageError, ApiError) as failed:
            return self._storage_failed(order, topic_id, failed)
        renamed.append(partition)
        return ErrorCode.NONE

    def _make_leaders(
        self,
        leading: list[tuple[Partition, LeaderAndIsrPartition]],
        request: LeaderAndIsr,
        errors: dict[TopicPartition, ErrorCode],
    ) -> None:
        self._fetchers.stop(p.tp for p, _ in leading)
        led: list[Partition] = []
        new_leaders: list[Partition] = []
        for partition, order in leading:
            try:
                log = self._hosted.get_or_create_log(partition, request.topic_ids.get(order.tp.topic), order.is_new)
                if partition.lead(order, log):
                    new_leaders.append(partition)
                # The ISR may be this broker alone, and then the high watermark can advance.
                partition.advance_high_watermark()
            except Exception as failed:
                errors[order.tp] = self._storage_failed(order, request.topic_ids.get(order.tp.topic), failed)
                continue
            self._hosted.partitions[order.tp] = partition
            led.append(partition)
        for partition in led:
            self._hosted.transitioned(partition)
        if new_leaders:
            # Their followers wait at the ends of other partitions, up to replica.fetch.wait.max.ms, and learn of this
            # leader at about the same time. Answering their fetches now has them return and ask for these partitions.
            followers = dict.fromkeys(r for partition in new_leaders for r in partition.remotes)
            self._hosted.timers.call_later(HURRY_S, lambda: self._hurry(followers))
        for partition in new_leaders:
            self._tell(lambda one, tp, epoch: one.on_leader(tp, epoch), partition.tp, partition.leader_epoch)

    def _make_followers(
        self,
        following: list[tuple[Partition, LeaderAndIsrPartition]],
        request: LeaderAndIsr,
        errors: dict[TopicPartition, ErrorCode],
    ) -> None:
        restarting: list[Partition] = []
        for partition, order in following:
            try:
                log = self._hosted.get_or_create_log(partition, request.topic_ids.get(order.tp.topic), order.is_new)
            except Exception as failed:
                errors[order.tp] = self._storage_failed(order, request.topic_ids.get(order.tp.topic), failed)
                continue
            if partition.log is None:
                partition.log = log
            self._hosted.partitions[order.tp] = partition
            # Without a live leader there is nobody to follow, but the log is created, so that its high watermark is
            # checkpointed (KAFKA-1647); leadership and epoch stay as they were.
            if self._hosted.metadata.is_alive(order.leader) and partition.follow(order, log):
                restarting.append(partition)
        self._fetchers.stop(p.tp for p in restarting)
        for partition in restarting:
            self._hosted.transitioned(partition)
        self._fetchers.start(restarting)
        for partition in restarting:
            self._tell(lambda one, tp, epoch: one.on_follower(tp, epoch), partition.tp, partition.leader_epoch)

    def _tell(
        self, news: Callable[[LeadershipListener, TopicPartition, int], None], tp: TopicPartition, epoch: int = NO_EPOCH
    ) -> None:
        """Tell all listeners: an error of one must not keep it from the others, nor those from the other partitions.

        Without its news a coordinator would refuse all its clients until the next election.
        """
        for listener in self._listeners:
            try:
                news(listener, tp, epoch)
            except Exception as error:
                tasks.failed("news of leadership", error)

    def _storage_failed(self, order: LeaderAndIsrPartition, topic_id: TopicId | None, failed: Exception) -> ErrorCode:
        tp = order.tp
        code = code_of(failed, tp)
        if not isinstance(failed, StorageError):
            return code if isinstance(failed, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
        if failed.is_passing:
            log.error("a replica has no log now", partition=str(tp), error=str(failed))
            self.missing_logs.note(order, topic_id)
        else:
            self.take_offline([tp])
        return code

    # StopReplica and failed directories

    def stop_replicas(self, request: StopReplica) -> PartitionErrors:
        """Carry out StopReplica: stop fetching, and delete the replica if asked to (facts §9)."""
        error = self._fence(request.broker_epoch, request.controller_epoch)
        if error is not ErrorCode.NONE:
            return PartitionErrors(error)
        errors: dict[TopicPartition, ErrorCode] = {}
        stopping: list[StopReplicaPartition] = []
        for order in request.partitions:
            if order.delete:
                self.missing_logs.forget(order.tp)
            errors[order.tp] = self._may_stop(order)
            if errors[order.tp] is ErrorCode.NONE:
                stopping.append(order)
        self._fetchers.stop(order.tp for order in stopping)
        for order in stopping:
            errors[order.tp] = self._stop(order)
        return PartitionErrors(ErrorCode.NONE, errors)

    def _may_stop(self, order: StopReplicaPartition) -> ErrorCode:
        # What is offline because of its log alone, where no directory is, can be deleted with its topic.
        if order.tp in self._hosted.offline and not (order.delete and self._hosted.logs.is_complete):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._hosted.partitions.get(order.tp)
        if partition is None or order.leader_epoch in (EPOCH_DURING_DELETE, NO_EPOCH):
            return ErrorCode.NONE
        stale = order.leader_epoch < partition.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.NONE

    def _stop(self, order: StopReplicaPartition) -> ErrorCode:
        hosted = self._hosted
        partition = hosted.partitions.get(order.tp)
        if order.delete and partition is not None:
            self._remember_deleted(partition)
            del hosted.partitions[order.tp]
            partition.take_offline()
        if partition is not None:
            partition.is_stopped = True
            hosted.transitioned(partition)
        if not order.delete:
            return ErrorCode.NONE
        hosted.offline.pop(order.tp, None)
        try:
            # The log may be one that no LeaderAndIsr named since the start: its topic was deleted while this broker was
            # down. And it may be one that could not be opened, which stands in the way of a topic of that name.
            hosted.logs.delete(order.tp)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._tell(lambda one, tp, _: one.on_deleted(tp), order.tp)
        return ErrorCode.NONE

    def _remember_deleted(self, partition: Partition) -> None:
        if partition.topic_id != ZERO_TOPIC_ID:
            self._deleted[partition.topic_id, partition.tp.partition] = partition.leader_epoch
            while len(self._deleted) > DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]

    # A follower's damaged log

    def leave_isr(self, tp: TopicPartition) -> None:
        """Have the leader remove this follower from the ISR: until `follow_again` or `set_aside` it appends nothing and
        shows the leader that it lags."""
        partition = self._hosted.partitions.get(tp)
        if partition is not None and not partition.leaves_isr:
            partition.leaves_isr = True
            self._start_following(partition)

    def follow_again(self, tp: TopicPartition) -> None:
        """Fetch a followed partition from the end of its log."""
        partition = self._hosted.partitions.get(tp)
        if partition is not None:
            partition.leaves_isr = False
            self._start_following(partition)

    def _start_following(self, partition: Partition) -> None:
        if not partition.is_leader and partition.log is not None:
            self._fetchers.start([partition])

    def set_aside(self, tp: TopicPartition) -> str:
        """Replace a follower's log by an empty one, to be filled from its leader; returns the old log's new path.

        Only for a replica outside the ISR: as a member it would count as having records that it no longer has. Raises
        StorageError: the replica is offline then.
        """
        hosted = self._hosted
        partition = hosted.partitions[tp]
        self._fetchers.stop([tp])
        self._tell(lambda one, tp, _: one.on_deleted(tp), tp)
        try:
            kept = hosted.logs.set_aside(tp)
        except StorageError:
            self.take_offline([tp])
            raise
        partition.log = hosted.logs.get(tp)
        partition.leaves_isr = False
        hosted.transitioned(partition)
        self._fetchers.start([partition])
        return kept

    def take_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and leading these, whose log directory failed: requests for them get KAFKA_STORAGE_ERROR."""
        failed = list(partitions)
        self._fetchers.stop(failed)
        for tp in failed:
            self._hosted.offline[tp] = None
            partition = self._hosted.partitions.pop(tp, None)
            if partition is None:
                continue
            epoch = partition.leader_epoch
            partition.take_offline()
            self._hosted.transitioned(partition)
            self._tell(lambda one, tp, epoch: one.on_follower(tp, epoch), tp, epoch)
