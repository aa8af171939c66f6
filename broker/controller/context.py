"""The controller's memory: brokers, topics, partitions, replicas, deletions; one mutable object of its runner.

Rule 1: nothing here decides; procedures change it in place, and only after the change is in ZooKeeper.
Rule 2: everything that is iterated is ordered (dicts keep insertion order, results are sorted), so that no result
depends on the order of a set.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.model import Assignment, BrokerInfo, PartitionState, TopicAssignment, TopicId, TopicPartition


class PartitionPhase(IntEnum):
    """The state of a partition (facts §4)."""

    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3


class ReplicaPhase(IntEnum):
    """The state of one replica (facts §4)."""

    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7


@dataclass(slots=True, eq=False)
class Partition:
    """One partition: its assignment, its state znode as last read or written, and its phases."""

    tp: TopicPartition
    assignment: Assignment
    state: PartitionState | None = None
    phase: PartitionPhase = PartitionPhase.NON_EXISTENT
    replicas: dict[int, ReplicaPhase] = field(default_factory=dict)

    def replica_phase(self, broker: int) -> ReplicaPhase:
        return self.replicas.get(broker, ReplicaPhase.NON_EXISTENT)

    @property
    def leader(self) -> int | None:
        """The leader's id; -1 if there is none, None if no state is known."""
        return None if self.state is None else self.state.leader


@dataclass(slots=True, eq=False)
class Topic:
    """One topic; `version` and `czxid` are those of its znode when it was last read or written.

    `unusable` are partitions with an invalid assignment (no, repeated or negative replicas): they are left alone, and
    kept when the znode is written again.
    """

    name: str
    topic_id: TopicId | None = None
    partitions: dict[int, Partition] = field(default_factory=dict)
    unusable: dict[int, Assignment] = field(default_factory=dict)
    version: int = -1
    czxid: int = -1

    def znode(self) -> TopicAssignment:
        """Return the content of /brokers/topics/T for this topic as it is in memory."""
        places = {number: partition.assignment for number, partition in self.partitions.items()}
        return TopicAssignment({**self.unusable, **places}, self.topic_id)


@dataclass(slots=True, eq=False)
class ControllerContext:
    """The controller's whole memory. `epoch` is 0 while this broker is not controller."""

    settings: ControllerSettings
    epoch: int = 0
    epoch_zk_version: int = -1
    last_epoch: int = 0
    outdone: dict[int, int] = field(default_factory=dict)
    """Broker → how often this controller moved to a much later epoch because that broker had seen one."""
    active_id: int = -1
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    """Live brokers, those that are shutting down included."""
    shutting_down: set[int] = field(default_factory=set)
    topics: dict[str, Topic] = field(default_factory=dict)
    names_by_id: dict[TopicId, str] = field(default_factory=dict)
    failed_dirs: dict[int, set[TopicPartition]] = field(default_factory=dict)
    """Broker → partitions that it has reported on a failed log directory."""
    reassigning: dict[TopicPartition, None] = field(default_factory=dict)
    deleting: dict[str, None] = field(default_factory=dict)
    """Topics queued for deletion, in the order of their requests."""
    deletion_ineligible: set[str] = field(default_factory=set)
    deletion_started: set[str] = field(default_factory=set)

    @property
    def is_active(self) -> bool:
        return self.epoch > 0

    def reset(self) -> None:
        """Forget everything except the settings, the controller's id if known, and the epochs seen."""
        self.last_epoch = max(self.last_epoch, self.epoch)
        self.epoch = 0
        self.epoch_zk_version = -1
        for holder in (self.brokers, self.topics, self.names_by_id, self.failed_dirs, self.reassigning, self.deleting):
            holder.clear()
        for names in (self.deletion_ineligible, self.deletion_started):
            names.clear()
        self.shutting_down.clear()

    # Brokers

    def live_ids(self) -> list[int]:
        """The brokers that are alive and not shutting down."""
        return [b for b in sorted(self.brokers) if b not in self.shutting_down]

    def reachable_ids(self) -> list[int]:
        """The brokers that are alive, shutting down or not: those that requests can be sent to."""
        return sorted(self.brokers)

    def is_live(self, broker: int) -> bool:
        return broker in self.brokers and broker not in self.shutting_down

    def is_online(self, broker: int, tp: TopicPartition, *, count_shutting_down: bool = False) -> bool:
        """Whether a replica is online: its broker is alive and the partition is not on one of its failed
        directories."""
        lives = broker in self.brokers if count_shutting_down else self.is_live(broker)
        return lives and tp not in self.failed_dirs.get(broker, ())

    def online_now(self) -> Callable[[Partition], tuple[int, ...]]:
        """Return what `online_replicas` is of each partition, for many of them while nothing changes.

        Each list of brokers, of which many partitions have the same, is looked at once.
        """
        live, failed_dirs = frozenset(self.live_ids()), self.failed_dirs
        known: dict[tuple[int, ...], tuple[int, ...]] = {}

        def online(partition: Partition) -> tuple[int, ...]:
            replicas = partition.assignment.replicas
            found = known.get(replicas)
            if found is None:
                found = known[replicas] = tuple(r for r in replicas if r in live)
            if failed_dirs:
                return tuple(r for r in found if partition.tp not in failed_dirs.get(r, ()))
            return found

        return online

    def online_replicas(self, partition: Partition, *, count_shutting_down: bool = False) -> tuple[int, ...]:
        """Return the assigned replicas that are online, in assignment order."""
        return tuple(
            r
            for r in partition.assignment.replicas
            if self.is_online(r, partition.tp, count_shutting_down=count_shutting_down)
        )

    # Topics and partitions

    def partition(self, tp: TopicPartition) -> Partition | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def partitions_of(self, names: Iterable[str]) -> list[Partition]:
        return [p for name in names if name in self.topics for p in self.topics[name].partitions.values()]

    def is_deleting(self, topic: str) -> bool:
        return topic in self.deleting

    def set_topic_id(self, topic: Topic, topic_id: TopicId | None) -> None:
        """Record a topic's id in both directions."""
        if topic.topic_id is not None:
            self.names_by_id.pop(topic.topic_id, None)
        topic.topic_id = topic_id
        if topic_id is not None:
            self.names_by_id[topic_id] = topic.name

    def forgetting(self, name: str) -> Iterator[int]:
        """Forget a topic, its deletion included; yields after each partition, of which there may be a hundred thousand.

        What is known of other topics' partitions is not looked at: it may be as much, for each of the topics that go.
        """
        topic = self.topics.get(name)
        while topic is not None and topic.partitions:
            _, partition = topic.partitions.popitem()
            self.reassigning.pop(partition.tp, None)
            for failed in self.failed_dirs.values():
                failed.discard(partition.tp)
            yield 1
        self.topics.pop(name, None)
        if topic is not None and topic.topic_id is not None:
            self.names_by_id.pop(topic.topic_id, None)
        self.deleting.pop(name, None)
        self.deletion_ineligible.discard(name)
        self.deletion_started.discard(name)
        yield 1
