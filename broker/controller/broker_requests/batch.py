"""LeaderAndIsr, UpdateMetadata and StopReplica as values, and the merging of one batch of them per broker.

Rule 1: a batch gives each broker at most one request of each kind, in the order LeaderAndIsr, UpdateMetadata,
StopReplica; only live brokers (shutting down or not) get any.
Rule 2: every partition in a LeaderAndIsr is sent to all brokers in UpdateMetadata.
Rule 3: isNew is sticky in a batch; of two orders to stop one replica the later counts, and a deletion stays one.
Rule 4: a partition without a known state is left out of UpdateMetadata; one whose topic is being deleted is sent with
leader -2.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from logyard.broker.controller.context import ControllerContext, Partition
from logyard.broker.model import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    Assignment,
    BrokerInfo,
    PartitionState,
    TopicId,
    TopicPartition,
)
from logyard.broker.portions import AT_ONCE

EPOCH_DURING_DELETE = -2
STOP_REPLICA_WITH_FLAGS = 3


class LeaderAndIsrPartition(NamedTuple):
    """What LeaderAndIsr tells one replica of its partition."""

    tp: TopicPartition
    state: PartitionState
    assignment: Assignment
    is_new: bool = False


class MetadataPartition(NamedTuple):
    """What UpdateMetadata tells every broker of a partition; `leader` is -2 while its topic is deleted."""

    tp: TopicPartition
    state: PartitionState
    leader: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()


class StoppedPartition(NamedTuple):
    """A replica to stop and perhaps delete. `leader_epoch` -2: topic deletion, -1: unknown."""

    tp: TopicPartition
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest:
    """To one broker: the state of its replicas. The type is always 0 (incremental)."""

    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    topic_ids: Mapping[str, TopicId]
    live_leaders: tuple[BrokerInfo, ...]
    type: int = 0


@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest:
    """To one broker: the live brokers and the state of these partitions. `partitions` is shared by a batch."""

    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[MetadataPartition, ...]
    topic_ids: Mapping[str, TopicId]
    live_brokers: tuple[BrokerInfo, ...]
    type: int = 0


@dataclass(frozen=True, slots=True)
class StopReplicaRequest:
    """To one broker: stop these replicas. Deletion waits for the answer to `topic_deletions`."""

    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[StoppedPartition, ...]
    topic_deletions: tuple[TopicPartition, ...] = ()


BrokerRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class RequestBatch:
    """Collects what one step of a state machine sends to the brokers."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        # A partition of the context is one object, and its identity a cheaper key than its name.
        self._leader_and_isr: defaultdict[int, dict[Partition, LeaderAndIsrPartition]] = defaultdict(dict)
        self._entries: dict[bool, dict[Partition, LeaderAndIsrPartition]] = {False: {}, True: {}}
        self._metadata: dict[Partition, None] = {}
        self._read: list[MetadataPartition] = []
        self._topic_ids: dict[str, TopicId] = {}
        self._leaders: defaultdict[int, set[int]] = defaultdict(set)
        self._metadata_brokers: dict[int, None] = {}
        self._everybody_hears = False
        self._stops: defaultdict[int, dict[Partition, StoppedPartition]] = defaultdict(dict)
        self._deletions: defaultdict[int, list[TopicPartition]] = defaultdict(list)

    def leader_and_isr(self, brokers: Iterable[int], partition: Partition, *, is_new: bool = False) -> None:
        """Add LeaderAndIsr of a partition for these replicas; its state must be known."""
        state = partition.state
        assert state is not None, f"{partition.tp} has no state to send"
        entry = None
        for broker in brokers:
            if broker in self._context.brokers:
                queue = self._leader_and_isr[broker]
                before = queue.get(partition)
                wanted = is_new or (before is not None and before.is_new)
                if entry is None or entry.is_new != wanted:
                    entry = self._entry(partition, state, wanted)
                queue[partition] = entry
        self._metadata[partition] = None
        self._everybody_hears = True

    def _entry(self, partition: Partition, state: PartitionState, is_new: bool) -> LeaderAndIsrPartition:
        """Return the entry; brokers that are sent the same share one, which is then encoded once."""
        entries = self._entries[is_new]
        entry = entries.get(partition)
        if entry is None or entry.state is not state or entry.assignment is not partition.assignment:
            entry = entries[partition] = LeaderAndIsrPartition(partition.tp, state, partition.assignment, is_new)
        return entry

    def update_metadata(self, partitions: Iterable[Partition], brokers: Iterable[int] | None = None) -> None:
        """Add UpdateMetadata of these partitions for these brokers (default: all reachable ones); without partitions it
        carries only the live brokers.

        The partitions' state is read when the batch is sent.
        """
        if brokers is None:
            self._everybody_hears = True
        else:
            self._metadata_brokers.update(dict.fromkeys(b for b in brokers if b in self._context.brokers))
        self._metadata.update(dict.fromkeys(partitions))

    def _metadata_of(
        self, partition: Partition, state: PartitionState, online_of: Callable[[Partition], tuple[int, ...]]
    ) -> MetadataPartition:
        tp = partition.tp
        replicas, online = partition.assignment.replicas, online_of(partition)
        return MetadataPartition(
            tp,
            state,
            LEADER_DURING_DELETE if self._context.is_deleting(tp.topic) else state.leader,
            replicas,
            () if len(online) == len(replicas) else tuple(r for r in replicas if r not in online),
        )

    def stop_replica(self, broker: int, partition: Partition, *, delete: bool) -> None:
        """Stop a replica, and delete its files if asked."""
        if broker not in self._context.brokers:
            return
        tp = partition.tp
        queue = self._stops[broker]
        before = queue.get(partition)
        if self._context.is_deleting(tp.topic):
            epoch = EPOCH_DURING_DELETE
        else:
            epoch = NO_EPOCH if partition.state is None else partition.state.leader_epoch
        queue[partition] = StoppedPartition(tp, epoch, delete or (before is not None and before.delete))

    def requests(self) -> list[BrokerRequest]:
        """Return everything collected, in sending order; a batch is used once."""
        for _ in self.prepare():
            pass
        return list(self.each())

    def prepare(self) -> Iterator[None]:
        """Read the partitions' states, which is to be done before `each`; after each AT_ONCE of them it yields."""
        hearers, online_of = self._hearers(), self._context.online_now()
        for number, partition in enumerate(self._metadata if hearers else (), 1):
            if partition.state is not None:
                self._read.append(self._metadata_of(partition, partition.state, online_of))
                self._note_id(partition.tp.topic)
            if number % AT_ONCE == 0:
                yield
        for broker, queue in self._leader_and_isr.items():
            leaders = self._leaders[broker]
            for number, entry in enumerate(queue.values(), 1):
                leaders.add(entry.state.leader)
                self._note_id(entry.tp.topic)
                if number % AT_ONCE == 0:
                    yield
        yield from self._prepare_stops()

    def _prepare_stops(self) -> Iterator[None]:
        is_deleting = self._context.is_deleting
        for broker, queue in self._stops.items():
            deleted = self._deletions[broker]
            for number, stop in enumerate(queue.values(), 1):
                if stop.delete and is_deleting(stop.tp.topic):
                    deleted.append(stop.tp)
                if number % AT_ONCE == 0:
                    yield

    def _note_id(self, name: str) -> None:
        topic = None if name in self._topic_ids else self._context.topics.get(name)
        if topic is not None and topic.topic_id is not None:
            self._topic_ids[name] = topic.topic_id

    def each(self) -> Iterator[BrokerRequest]:
        """Yield everything collected, in sending order; what is not asked for yet is not made."""
        for broker, queue in sorted(self._leader_and_isr.items()):
            yield self._leader_and_isr_request(broker, tuple(queue.values()))
        yield from self._update_metadata_requests()
        yield from self._stop_replica_requests()

    def _leader_and_isr_request(self, broker: int, entries: tuple[LeaderAndIsrPartition, ...]) -> LeaderAndIsrRequest:
        context = self._context
        leaders = sorted(self._leaders[broker] & context.brokers.keys())
        live_leaders = tuple(context.brokers[leader] for leader in leaders)
        return LeaderAndIsrRequest(*self._head(broker), entries, self._topic_ids, live_leaders)

    def _head(self, broker: int) -> tuple[int, int, int, int]:
        """What every request begins with: the broker and its epoch, the controller and its."""
        context = self._context
        return broker, context.brokers[broker].epoch, context.settings.broker_id, context.epoch

    def _hearers(self) -> list[int]:
        """Return who is sent UpdateMetadata."""
        return self._context.reachable_ids() if self._everybody_hears else sorted(self._metadata_brokers)

    def _update_metadata_requests(self) -> list[UpdateMetadataRequest]:
        context, hearers = self._context, self._hearers()
        if not hearers:
            return []
        entries = tuple(self._read)
        live = tuple(context.brokers[b] for b in context.reachable_ids())
        return [UpdateMetadataRequest(*self._head(broker), entries, self._topic_ids, live) for broker in hearers]

    def _stop_replica_requests(self) -> list[StopReplicaRequest]:
        """One request per broker; two in versions that have a single deletion flag for the whole request."""
        context = self._context
        mixed = context.settings.level.stop_replica_version >= STOP_REPLICA_WITH_FLAGS
        requests: list[StopReplicaRequest] = []
        for broker, queue in sorted(self._stops.items()):
            stops = list(queue.values())
            groups = [stops] if mixed else [[s for s in stops if not s.delete], [s for s in stops if s.delete]]
            requests.extend(
                StopReplicaRequest(
                    *self._head(broker),
                    tuple(group),
                    # Only the group of those to be deleted has any, and it has all of them.
                    tuple(self._deletions[broker]) if mixed or group[0].delete else (),
                )
                for group in groups
                if group
            )
        return requests
