"""How the throttles of started moves are ended, and what the commands that do it share.

Nobody owns a throttle once its moves have started: `verify` and `cancel` remove it, from every broker that lives. So
which brokers live is what the witnesses say (presence.py): one that the broker that was asked does not know would keep
its throttle, and nobody would be told.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.admin.cluster.presence import TopicClient
from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, LogDirs, ReplicaSize
from logyard.admin.ports import Pause, Say
from logyard.admin.reassignment import status
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.reassignment.throttles.records import BROKER, TOPIC, Records, ThrottleSetting
from logyard.admin.reassignment.throttles.settings import BROKER_THROTTLES, TOPIC_THROTTLES
from logyard.broker.errors import ApiError, LogyardError
from logyard.broker.model import Assignment, TopicPartition


class ReassignmentRefused(LogyardError):
    """The cluster, or a running reassignment, does not allow this; the text says what would help."""


@dataclass(frozen=True, slots=True)
class ThrottleOwner:
    """This run of the command as an owner of throttles, until its moves have started.

    `name`: unique for each run. `records`: where the records of a cluster are kept, by its id. `lives`: whether the run
    of that name is still working.
    """

    name: str
    records: Callable[[str], Records]
    lives: Callable[[str], bool]


class ReassignmentClient(TopicClient, Protocol):
    """The calls that are needed; `ports.ClusterClient` has them all."""

    @property
    def reaches_dead_brokers(self) -> bool:
        """Whether a broker's settings can be changed while it is down."""
        ...

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot: ...

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]: ...

    def alter_topic_configs(self, topic: str, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]: ...

    def alter_broker_configs(self, broker: int, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]: ...

    def list_reassignments(self) -> dict[TopicPartition, Assignment]: ...

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]: ...

    def log_dirs(self, brokers: Sequence[int] | None = None) -> LogDirs: ...

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[str, int, int], str]
    ) -> dict[tuple[str, int, int], ApiError | None]: ...


def book_of(client: ReassignmentClient, snapshot: ClusterSnapshot, owner: ThrottleOwner, pause: Pause) -> ThrottleBook:
    live = None if client.reaches_dead_brokers else list(snapshot.brokers)
    return ThrottleBook(client, owner.records(snapshot.cluster_id), pause, live)


def away(client: ReassignmentClient, snapshot: ClusterSnapshot, brokers: Sequence[int]) -> list[int]:
    """The brokers whose settings cannot be changed now."""
    return [broker for broker in brokers if broker not in snapshot.brokers and not client.reaches_dead_brokers]


def clear(
    client: ReassignmentClient,
    snapshot: ClusterSnapshot,
    targets: Sequence[tuple[TopicPartition, tuple[int, ...]]],
    owner: ThrottleOwner,
    pause: Pause,
    say: Say,
) -> None:
    """Remove the throttles of all brokers and of the targets' topics; `snapshot`: as the witnesses know them.

    Raises ReassignmentRefused if those of a broker stay.
    """
    topics = sorted({tp.topic for tp, _ in targets})
    book = book_of(client, snapshot, owner, pause)
    book.sweep(owner.lives, client.list_reassignments())
    brokers = sorted(set(snapshot.brokers) | {broker for _, replicas in targets for broker in replicas})
    unreached = away(client, snapshot, brokers)
    say(f"Clearing broker-level throttles on broker{status.plural(brokers)} {status.ids(brokers)}")
    held = book.held()
    rates = [ThrottleSetting(BROKER, str(b), key) for b in brokers if b not in unreached for key in BROKER_THROTTLES]
    left = set(rates) - held - set(book.remove(rates))
    unreached = sorted({*unreached, *(int(setting.name) for setting in left)})
    say(f"Clearing topic-level throttles on topic{status.plural(topics)} {','.join(topics)}")
    book.remove(
        ThrottleSetting(TOPIC, topic, key) for topic in topics if topic in snapshot.topics for key in TOPIC_THROTTLES
    )
    if unreached:
        raise ReassignmentRefused(
            f"broker{status.plural(unreached)} {status.ids(unreached)} cannot be asked: its throttles "
            "stay; verify again when it is back"
        )
