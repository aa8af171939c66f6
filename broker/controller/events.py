"""The controller's events: from ZooKeeper, from brokers, from timers, and requests of the admin API.

Events are values with names in the past tense. Requests are named for what is asked, and are answered by exactly one
`Answer` effect with a value of the type that each of them names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from logyard.broker.controller.broker_requests.partition_states import PartitionCodes
from logyard.broker.errors import ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, Assignment, PartitionState, TopicId, TopicPartition

A = TypeVar("A", covariant=True)

# From this broker's own life


@dataclass(frozen=True, slots=True)
class Started:
    """The broker is registered and may stand for controller."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The ZooKeeper session is gone."""


@dataclass(frozen=True, slots=True)
class SessionRestored:
    """A new session exists and the broker is registered in it."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """This broker must give up being controller (asked by tests and operators)."""


# From ZooKeeper


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """/controller was created, changed or deleted."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The children of /brokers/ids changed."""


@dataclass(frozen=True, slots=True)
class BrokerModified:
    """The data of /brokers/ids/N changed."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The children of /brokers/topics changed."""


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """The data of /brokers/topics/T changed."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionRequested:
    """The children of /admin/delete_topics changed."""


@dataclass(frozen=True, slots=True)
class LogDirsFailed:
    """The children of /log_dir_event_notification changed."""


@dataclass(frozen=True, slots=True)
class IsrsChanged:
    """The children of /isr_change_notification changed."""


@dataclass(frozen=True, slots=True)
class ReassignmentRequested:
    """/admin/reassign_partitions was created or changed."""


@dataclass(frozen=True, slots=True)
class ReassigningStateChanged:
    """The state znode of a partition that is being reassigned changed (watched below 2.7-IV2 only)."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class PreferredElectionRequested:
    """/admin/preferred_replica_election was created or changed."""


# From brokers


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker has answered LeaderAndIsr."""

    broker_id: int
    broker_epoch: int
    error: ErrorCode
    partitions: PartitionCodes


@dataclass(frozen=True, slots=True)
class UpdateMetadataAnswered:
    """A broker has refused UpdateMetadata."""

    broker_id: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ReplicasDeleted:
    """A broker has answered a StopReplica that deletes; `partitions` are those it was to delete.

    One that is missing in the answer does not exist on the broker, or the whole request was refused: `error` counts.
    """

    broker_id: int
    error: ErrorCode
    partitions: Sequence[TopicPartition]
    answered: PartitionCodes


# From timers and settings


@dataclass(frozen=True, slots=True)
class LeadersImbalanceDue:
    """Leaders that are not the preferred ones are to be looked for."""


@dataclass(frozen=True, slots=True)
class DeletionRetryDue:
    """Deletions that a live broker failed to do are to be tried again."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """unclean.leader.election.enable became true for a topic, or for all (None)."""

    topic: str | None = None


# Requests


class Request(Generic[A]):
    """Asked of the controller (`ControllerRunner.ask`), which answers with an A."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request for one topic, partition or feature: NONE or an error, and its text."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """One topic to create. -1 takes the controller's default; `assignments` are (partition, brokers)."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The result of creating one topic; counts, id and configs are set if the error is NONE."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopics(Request[Sequence[CreatedTopic]]):
    """Create topics, or only check them. Answered in order once the znodes are there; they are led a little later."""

    topics: Sequence[NewTopic]
    validate_only: bool = False
    rack_aware: bool = True
    """False for an auto-creation, which ignores racks if only some brokers have one."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Grow a topic to `count` partitions; `assignments`, when given, places the new ones in order."""

    topic: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Request[dict[str, Outcome]]):
    """Grow topics, or only check. Answered once the topic znodes are written; the partitions are led a little later."""

    topics: Sequence[NewPartitions]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopics(Request[dict[str, Outcome]]):
    """Delete topics. Answered once they are queued for deletion; they go a little later.

    `ids` has the ids of topics that were asked for by id: one that has another id now is refused.
    """

    topics: tuple[str, ...]
    ids: Mapping[str, TopicId] = field(default_factory=dict)


class ElectionKind(Enum):
    """The election_type of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders(Request[dict[TopicPartition, Outcome]]):
    """Elect leaders; None means all partitions. Answered once the elections are written."""

    kind: ElectionKind
    partitions: Sequence[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class AlterReassignments(Request[dict[TopicPartition, Outcome]]):
    """Move partitions to other replicas; None cancels. Answered once the moves have begun."""

    targets: Sequence[tuple[TopicPartition, tuple[int, ...] | None]]


@dataclass(frozen=True, slots=True)
class ListReassignments(Request[Mapping[TopicPartition, Assignment]]):
    """Running reassignments of these partitions, or of all (None)."""

    partitions: Sequence[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class IsrChange:
    """One partition of AlterPartition, by `topic` (v0-1) or by `topic_id` (v2+).

    `isr_epochs` are the broker epochs of the members of `new_isr` (v3, KIP-903); -1, or an empty tuple: not known.
    """

    partition: int
    leader_epoch: int
    new_isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False
    topic: str | None = None
    topic_id: TopicId | None = None
    isr_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartition(Request["AlterPartitionResult"]):
    """A leader asks for new ISRs. Answered once they are written."""

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]
    version: int = 3


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The answer for one partition; `state` is the committed one if the error is NONE."""

    change: IsrChange
    error: ErrorCode = ErrorCode.NONE
    state: PartitionState | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """`error` is that of the whole request; the partitions are in the request's order."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[AlteredPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Request["ProducerIdBlock"]):
    """A broker asks for a block of producer ids. Answered once the block is written."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """`length` ids from `start` on, if the error is NONE."""

    error: ErrorCode = ErrorCode.NONE
    start: int = -1
    length: int = 0


class UpgradeKind(Enum):
    """What UpdateFeatures may do to a feature's level (KIP-584, KIP-778)."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """A feature and the level it is to have; a level below 1 removes it."""

    name: str
    level: int
    kind: UpgradeKind = UpgradeKind.UPGRADE


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Request[dict[str, Outcome]]):
    """Finalize features, or only check. Answered once /feature is written."""

    changes: tuple[FeatureChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ControlledShutdown(Request["ShutdownResult"]):
    """A broker is about to shut down. Answered once its leaderships have been handed over as far as possible."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ShutdownResult:
    """The partitions that the broker still leads (replication factor > 1), if the error is NONE."""

    error: ErrorCode = ErrorCode.NONE
    remaining: tuple[TopicPartition, ...] = ()


Event = (
    Started
    | SessionLost
    | SessionRestored
    | Resigned
    | ControllerChanged
    | BrokersChanged
    | BrokerModified
    | TopicsChanged
    | PartitionsChanged
    | DeletionRequested
    | LogDirsFailed
    | IsrsChanged
    | ReassignmentRequested
    | ReassigningStateChanged
    | PreferredElectionRequested
    | LeaderAndIsrAnswered
    | UpdateMetadataAnswered
    | ReplicasDeleted
    | LeadersImbalanceDue
    | DeletionRetryDue
    | UncleanElectionEnabled
    | Request[Any]
)
