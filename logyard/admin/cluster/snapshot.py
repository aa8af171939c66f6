"""A cluster at one moment: brokers, controller, topics, partitions; values only.

Everything that waits (sensors, triggers, the recovery) and everything that plans uses a snapshot, so that "is it done?"
is a pure function of one moment.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.model import NO_LEADER, Assignment, TopicPartition

NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker as clients see it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as in Metadata; `replicas` in assignment order, the preferred leader first."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int = -1

    @property
    def preferred(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_led(self) -> bool:
        return self.leader >= 0

    def is_under_replicated(self, moving: Assignment | None = None) -> bool:
        """Whether the ISR has fewer replicas than the partition should have.

        As Kafka's leaders count: replicas that `moving`, a running reassignment, adds do not count before they are in
        sync, so a planned move is no fault.
        """
        adding = () if moving is None else moving.adding
        return len(self.isr) < len(self.replicas) - len(set(adding) & set(self.replicas))


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic; `partitions` in the order of their numbers."""

    name: str
    partitions: tuple[PartitionView, ...]
    topic_id: str | None = None
    internal: bool = False

    @property
    def replication_factor(self) -> int:
        """The largest number of replicas that any of its partitions has."""
        return max((len(p.replicas) for p in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster at one moment.

    `reassignments` is None if it was not requested or no controller answered; `missing` are the requested topics that
    do not exist, as the controller's broker says too. What only is not in `topics` may be unknown to one broker.
    """

    cluster_id: str
    controller: int
    brokers: Mapping[int, BrokerNode]
    topics: Mapping[str, TopicView]
    taken_at_ms: int = 0
    reassignments: Mapping[TopicPartition, Assignment] | None = None
    missing: tuple[str, ...] = ()

    def partitions(self, topics: Sequence[str] | None = None) -> Iterator[tuple[TopicPartition, PartitionView]]:
        """Every partition (of those topics), in the order of topic name and number."""
        for name in sorted(self.topics if topics is None else set(topics) & set(self.topics)):
            for view in self.topics[name].partitions:
                yield TopicPartition(name, view.partition), view

    def partition(self, tp: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(tp.topic)
        views = topic.partitions if topic is not None else ()
        # In the order of their numbers, so that it is nearly always there: a plan asks for every partition of a topic.
        if tp.partition < len(views) and views[tp.partition].partition == tp.partition:
            return views[tp.partition]
        return next((p for p in views if p.partition == tp.partition), None)

    def unled(self, topics: Sequence[str] | None = None) -> list[TopicPartition]:
        """Partitions without a live leader."""
        return [tp for tp, p in self.partitions(topics) if p.leader not in self.brokers]

    def under_replicated(self, topics: Sequence[str] | None = None) -> list[TopicPartition]:
        """Partitions with too few replicas in the ISR; those that running reassignments add are left out, if known."""
        moving = self.reassignments or {}
        return [tp for tp, p in self.partitions(topics) if p.is_under_replicated(moving.get(tp))]

    def not_preferred(self, topics: Sequence[str] | None = None) -> list[TopicPartition]:
        """Partitions whose leader is not the first of their replicas."""
        return [tp for tp, p in self.partitions(topics) if p.leader != p.preferred]

    def ready(self, topic: str, partitions: int | None = None) -> bool:
        """Whether the topic exists (with at least that many partitions) and each partition has a leader."""
        view = self.topics.get(topic)
        if view is None or not view.partitions:
            return False
        enough = partitions is None or len(view.partitions) >= partitions
        return enough and not self.unled([topic])


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One replica on one broker's disk. `offset_lag`: records behind the high watermark (a future replica: behind the
    current one)."""

    broker: int
    log_dir: str
    tp: TopicPartition
    size: int
    offset_lag: int = 0
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class DirectorySpace:
    """One log directory, and the bytes of the volume that it is on (KIP-827); None where its broker does not know."""

    broker: int
    path: str
    total: int | None = None
    usable: int | None = None
    is_online: bool = True

    @property
    def used(self) -> int | None:
        """Everything that is not usable, also what other programs hold there."""
        return None if self.total is None or self.usable is None else max(self.total - self.usable, 0)


@dataclass(frozen=True, slots=True)
class LogDirs:
    """What brokers say of their log directories: the replicas in them, and their disks."""

    replicas: tuple[ReplicaSize, ...] = ()
    directories: tuple[DirectorySpace, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting of a topic or broker. `source` is Kafka's name of its origin.

    `default`: what holds where nobody sets it; None where the broker did not tell.
    """

    value: str | None
    source: str
    read_only: bool = False
    sensitive: bool = False
    default: str | None = None

    @property
    def is_override(self) -> bool:
        """Whether it is set on this very resource, not inherited or a default."""
        return self.source in ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG")


@dataclass(frozen=True, slots=True)
class GroupView:
    """A consumer group: its state, the number of its members, and the topics that are assigned to them."""

    group_id: str
    state: str
    members: int = 0
    protocol_type: str = ""
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; either partitions and replication factor (-1: the broker's default) or `assignment`."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


def as_json(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """The snapshot as plain JSON values, for the page and the command."""
    under = snapshot.under_replicated()
    return {
        "cluster_id": snapshot.cluster_id,
        "controller": snapshot.controller,
        "taken_at_ms": snapshot.taken_at_ms,
        "brokers": [broker_json(snapshot, broker) for _, broker in sorted(snapshot.brokers.items())],
        "topics": [topic_json(snapshot.topics[name]) for name in sorted(snapshot.topics)],
        "under_replicated": [str(tp) for tp in under],
        "offline": [str(tp) for tp in snapshot.unled()],
        "reassignments": [
            {"partition": str(tp), "replicas": list(a.replicas), "adding": list(a.adding), "removing": list(a.removing)}
            for tp, a in sorted((snapshot.reassignments or {}).items())
        ],
    }


def broker_json(snapshot: ClusterSnapshot, broker: BrokerNode) -> dict[str, Any]:
    """One broker with the numbers of replicas it holds and partitions it leads."""
    views = [p for _, p in snapshot.partitions()]
    return {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "replicas": sum(broker.id in p.replicas for p in views),
        "leaders": sum(p.leader == broker.id for p in views),
    }


def topic_json(topic: TopicView) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "under_replicated": p.is_under_replicated(),
            }
            for p in topic.partitions
        ],
    }
