"""The ports of the administration: a cluster and its ZooKeeper.

`cluster/client.py` and `zookeeper/ensemble.py` implement them; `memory_clients.py` and `memory_ensemble.py` in
`tests/support` are their twins.
Every call is synchronous and bounded by the timeouts of the settings. A refusal by the cluster is ApiError; a cluster
that does not answer is ClusterUnreachable.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.admin.acls.acls import Acl, AclFilter
from logyard.admin.cluster.fetching import Fetched
from logyard.admin.cluster.snapshot import (
    ClusterSnapshot,
    ConfigValue,
    GroupView,
    LogDirs,
    NewTopic,
    ReplicaSize,
)
from logyard.admin.cluster.told_offsets import ToldOffsets
from logyard.admin.configs.entities import Entity
from logyard.admin.groups.groups import Group
from logyard.admin.quotas.quotas import Quota
from logyard.admin.recovery.witnesses import ControllerView, HostState, Journal, Probe
from logyard.admin.transactions.hanging import TransactionClient
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import ApiError, LogyardError
from logyard.broker.model import Assignment, PartitionState, TopicPartition

EARLIEST = -2
LATEST = -1

Say = Callable[[str], None]
"""Shows a line of text to the user."""


class ClusterUnreachable(LogyardError):
    """No broker answered in time (wrong address, all down, TLS or credentials refused); the text says what to check."""


class EnsembleUnreachable(LogyardError):
    """ZooKeeper did not answer in time, or the connection names none."""


class AccessRefused(ClusterUnreachable):
    """Brokers are alive and refuse this login; this says nothing about the cluster's health."""


class ClusterClient(Protocol):
    """Kafka's admin requests, as far as the operators, the command and the page need them."""

    @property
    def reaches_dead_brokers(self) -> bool:
        """Whether a broker's settings can be changed while it is down; not by requests, which only the broker
        answers."""
        ...

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot:
        """As any broker knows the cluster, which may be behind; a topic that it does not know is asked of `witnessed`.

        A named topic that nobody could tell about is in neither of `topics` and `missing`.
        """
        ...

    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot:
        """As the controller's broker knows the cluster; in a KRaft cluster, what any of its brokers knows.

        What is not in it does not exist. Raises ClusterUnreachable, ApiError where that cannot be told now.
        """
        ...

    def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None: ...

    def delete_topic(self, topic: str, topic_id: str | None = None) -> None:
        """`topic_id`: the topic with this id only, so not another one that has the name by now.

        Brokers that know no ids (before 2.8) go by the name. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, or
        UNKNOWN_TOPIC_ID.
        """
        ...

    def add_partitions(
        self, topic: str, total: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None: ...

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]: ...

    def topics_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigValue]]:
        """The settings of many topics; deleted topics are left out, and of those whose settings this user may not see
        nothing is told (an empty mapping)."""
        ...

    def alter_topic_configs(
        self, topic: str, values: Mapping[str, str], delete: Sequence[str] = (), *, validate_only: bool = False
    ) -> None: ...

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]: ...

    def alter_broker_configs(
        self, broker: int | None, values: Mapping[str, str], delete: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        """`broker` None: the dynamic settings of all brokers."""
        ...

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]: ...

    def list_reassignments(self) -> dict[TopicPartition, Assignment]: ...

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]: ...

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]: ...

    def log_dirs(self, brokers: Sequence[int] | None = None) -> LogDirs:
        """The same with the directories, and the bytes of their disks where brokers know them."""
        ...

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[str, int, int], str]
    ) -> dict[tuple[str, int, int], ApiError | None]:
        """Move replicas (topic, partition, broker) to directories of their brokers."""
        ...

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: int = LATEST) -> dict[TopicPartition, int]: ...

    def told_offsets(self, leaders: Mapping[TopicPartition, int], timestamp: int = LATEST) -> ToldOffsets:
        """The first or the last offsets (EARLIEST, LATEST), by each partition's leader, once and all at the same time.

        For who looks again soon: where a leader does not answer, or leads no more, only its offsets are not known.
        Raises ClusterUnreachable where there is no connection at all.
        """
        ...

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]: ...

    def groups(self) -> list[GroupView]: ...

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]: ...

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    def probe(self, addresses: Mapping[int, tuple[str, int]], timeout_s: float) -> dict[int, Probe]:
        """Return how each of those brokers answers at its (host, port). Never raises."""
        ...

    def close(self) -> None: ...


class AccessClient(Protocol):
    """Requests about who may do what, and how much of it."""

    def acls(self, chosen: AclFilter) -> list[Acl]:
        """Raises ApiError: SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED."""
        ...

    def create_acls(self, wanted: Sequence[Acl]) -> None: ...

    def delete_acls(self, chosen: Sequence[AclFilter]) -> list[Acl]: ...

    def scram_users(self, users: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        """User → mechanism → iterations; users without credentials are left out."""
        ...

    def alter_users(
        self, upsert: Sequence[NewPassword], delete: Mapping[str, Sequence[str]]
    ) -> dict[str, ApiError | None]:
        """Set credentials, and remove others (user → mechanisms); returns each user's error, or None."""
        ...

    def quotas(self, entity: Entity) -> list[Quota]:
        """Of entities with exactly these types and, if given, names."""
        ...

    def alter_quotas(self, entity: Entity, values: Mapping[str, float], remove: Sequence[str] = ()) -> None: ...


@dataclass(frozen=True, slots=True)
class Quorum:
    """The leader of the metadata of a KRaft cluster (-1: none now), and its epoch."""

    leader: int
    epoch: int


class DescribingClient(ClusterClient, TransactionClient, AccessClient, Protocol):
    """A client that also describes groups, transactions, rights and the quorum, and reads records."""

    def describe_group(self, group_id: str) -> Group:
        """One group with its members; one that does not exist is Dead."""
        ...

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with its committed offsets.

        Raises ApiError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND (also where an answer was lost and the request repeated),
        GROUP_AUTHORIZATION_FAILED.
        """
        ...

    def fetch(self, tp: TopicPartition, leader: int, offset: int, size_max: int) -> Fetched:
        """About `size_max` bytes of batches from an offset on, of the partition's leader.

        Raises ApiError (OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED …).
        """
        ...

    def broker_defaults(self) -> dict[str, ConfigValue]:
        """The dynamic settings of all brokers, for those that have no value of their own."""
        ...

    def quorum(self) -> Quorum | None:
        """The quorum of a KRaft cluster; None for a ZooKeeper cluster."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionsView:
    """Every partition's state in ZooKeeper; `stateless` are assigned but have no state yet."""

    states: Mapping[TopicPartition, PartitionState]
    assignments: Mapping[TopicPartition, Assignment]
    stateless: tuple[TopicPartition, ...] = ()
    deleting: tuple[str, ...] = ()


class Ensemble(Protocol):
    """The cluster's ZooKeeper, read by the schemas of broker/znodes; all writes are fenced.

    Every method raises EnsembleUnreachable if ZooKeeper does not answer, or refuses a write.
    """

    def controller(self) -> ControllerView: ...

    def partitions(self) -> PartitionsView: ...

    def exercise(self, timeout_s: float) -> bool | None:
        """Test whether the controller processes its queue, without asking a broker: request an election without
        partitions, which a controller removes. False: it did not within that time; None: this cannot be tested here."""
        ...

    def journal(self) -> Journal:
        """The recent steps of recoveries in this cluster, and ZooKeeper's time."""
        ...

    def note(self, journal: Journal, kind: str, broker: int) -> bool:
        """Record a step before it is taken; False if another recovery is active: diagnose again."""
        ...

    def fence(self, seen: ControllerView, journal: Journal) -> bool:
        """Delete /controller and record that, unless a controller was elected since `seen`; False: diagnose again."""
        ...

    def nudge_election(self) -> bool:
        """Create and remove an ephemeral /controller, so that brokers that lost their watch run for election again."""
        ...

    def repair_epoch(self, seen: ControllerView, epoch: int) -> bool:
        """Write a number into an unparsable /controller_epoch; False if it changed since `seen`."""
        ...

    def close(self) -> None: ...


class Pause(Protocol):
    """Time for procedures that wait: a monotonic clock and sleep, in seconds."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class Launcher(Protocol):
    """Starts and stops brokers. `start` and `stop` raise LogyardError with the command's output."""

    @property
    def can_stop(self) -> bool: ...

    def start(self, broker: int, host: str = "", rack: str = "") -> None: ...

    def stop(self, broker: int, host: str = "", rack: str = "") -> bool:
        """Stop what is left of a broker's process; False if no stop command is set."""
        ...

    def host_state(self, broker: int, host: str = "", rack: str = "") -> HostState:
        """The broker's state as its own host reports it; UNKNOWN if no status command is set. Never raises."""
        ...
