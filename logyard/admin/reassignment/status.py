"""Where a reassignment stands, told in the words of kafka-reassign-partitions; and what a throttle has to name. Pure.

The lists of a throttle: on the leaders' side every broker that has a replica today, on the followers' side those
that get one (facts §6).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.reassignment.json_files import Replica
from logyard.admin.reassignment.throttles.settings import FOLLOWERS, LEADERS
from logyard.broker.model import Assignment, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """One partition: its replicas now, the wanted ones, and whether nothing moves it any more."""

    current: tuple[int, ...]
    target: tuple[int, ...]
    done: bool

    @property
    def as_wanted(self) -> bool:
        return self.done and self.current == self.target


@dataclass(frozen=True, slots=True)
class DirMove:
    """One replica's directory: the wanted one, today's (None: on no living directory), and that of a copy on its way.

    `broker_lives`: whether its broker could be asked.
    """

    target: str
    current: str | None = None
    future: str | None = None
    broker_lives: bool = True

    @property
    def is_active(self) -> bool:
        return self.future is not None

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be waited for; a replica on another directory that nobody moves counts, as in Kafka."""
        return self.broker_lives and self.current is not None and self.future is None


def partition_moves(
    targets: Iterable[tuple[TopicPartition, tuple[int, ...]]], snapshot: ClusterSnapshot
) -> dict[TopicPartition, PartitionMove]:
    """Compare targets with a snapshot that has reassignments; a partition that is gone has no replicas."""
    running = snapshot.reassignments or {}
    views = dict(snapshot.partitions())
    found = {}
    for tp, target in targets:
        view = views.get(tp)
        current = running[tp].replicas if tp in running else view.replicas if view else ()
        found[tp] = PartitionMove(current, target, tp not in running)
    return found


def dir_moves(
    targets: Mapping[Replica, str], sizes: Iterable[ReplicaSize], live: Iterable[int]
) -> dict[Replica, DirMove]:
    alive = frozenset(live)
    places: dict[Replica, dict[bool, str]] = {}
    for one in sizes:
        places.setdefault(Replica(*one.tp, one.broker), {})[one.is_future] = one.log_dir
    return {
        replica: DirMove(
            target, places.get(replica, {}).get(False), places.get(replica, {}).get(True), replica.broker in alive
        )
        for replica, target in targets.items()
    }


def partition_text(moves: Mapping[TopicPartition, PartitionMove]) -> str:
    lines = ["Status of partition reassignment:"]
    for tp, move in sorted(moves.items()):
        if not move.done:
            lines.append(f"Reassignment of partition {tp} is still in progress.")
        elif move.current == move.target:
            lines.append(f"Reassignment of partition {tp} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {tp}, but replica set is {ids(move.current)} "
                f"rather than {ids(move.target)}."
            )
    return "\n".join(lines)


def dir_text(moves: Mapping[Replica, DirMove]) -> str:
    return "\n".join(_dir_line(replica, moves[replica]) for replica in in_order(moves))


def _dir_line(replica: Replica, move: DirMove) -> str:
    named = f"Partition {replica.topic}-{replica.partition}"
    if not move.broker_lives:
        return f"{named} cannot be found in any live log directory on broker {replica.broker}."
    if move.current is None:
        return (
            f"{named} is not found in any live log dir on broker {replica.broker}. "
            "There is likely an offline log directory on the broker."
        )
    if move.future is None:
        if move.current == move.target:
            return f"Reassignment of replica {replica} completed successfully."
        return f"{named} on broker {replica.broker} is not being moved from log dir {move.current} to {move.target}."
    if move.future == move.target:
        return f"Reassignment of replica {replica} is still in progress."
    return f"{named} on broker {replica.broker} is being moved to log dir {move.future} instead of {move.target}."


def running_text(running: Mapping[TopicPartition, Assignment]) -> str:
    """What `list` prints."""
    if not running:
        return "No partition reassignments found."
    lines = ["Current partition reassignments:"]
    for tp, assignment in sorted(running.items()):
        adding = f" adding: {ids(assignment.adding)}." if assignment.adding else ""
        removing = f" removing: {ids(assignment.removing)}." if assignment.removing else ""
        lines.append(f"{tp}: replicas: {ids(assignment.replicas)}.{adding}{removing}")
    return "\n".join(lines)


def ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def in_order(replicas: Iterable[Replica]) -> list[Replica]:
    """By broker, then topic, then partition."""
    return sorted(replicas, key=lambda r: (r.broker, r.topic, r.partition))


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """Topic → key → list of `partition:broker`, and the brokers whose rate is limited."""

    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brokers: Sequence[int] = ()


def throttle_settings(
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    running: Mapping[TopicPartition, Assignment],
) -> ThrottleSettings:
    """What Kafka's tool sets for these moves; those that run already keep their places on the lists."""
    sources = {tp: set(assignment.origin) for tp, assignment in running.items()}
    destinations = {tp: set(assignment.adding) for tp, assignment in running.items()}
    for tp, replicas in proposed.items():
        sources.setdefault(tp, set(current[tp]))
        destinations[tp] = set(replicas) - sources[tp]
    leaders, followers = _listed(sources), _listed(destinations)
    topics = {topic: {LEADERS: leaders[topic], FOLLOWERS: followers.get(topic, "")} for topic in sorted(leaders)}
    return ThrottleSettings(topics, sorted(set().union(*sources.values(), *destinations.values())))


def _listed(brokers: Mapping[TopicPartition, Iterable[int]]) -> dict[str, str]:
    """Topic → its list."""
    entries: dict[str, list[str]] = {}
    for tp, held in brokers.items():
        entries.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in held)
    # Sorted as text, as Kafka's TreeSet of strings does.
    return {topic: ",".join(sorted(found)) for topic, found in entries.items()}


@dataclass(frozen=True, slots=True)
class Copied:
    """How far a reassignment is: partitions, and bytes that new replicas hold of those they are to hold."""

    partitions: int
    done: int
    bytes: int = 0
    bytes_there: int = 0

    def __str__(self) -> str:
        text = f"{self.done} of {self.partitions} partitions are where they shall be"
        if self.bytes:
            text += f", {self.bytes_there / 1e6:,.1f} of {self.bytes / 1e6:,.1f} MB of the others are copied"
        return text


def copied(
    moves: Mapping[TopicPartition, PartitionMove],
    running: Mapping[TopicPartition, Assignment],
    sizes: Iterable[ReplicaSize],
) -> Copied:
    """Count what is done, and compare new replicas' sizes with the largest replica's."""
    held: dict[TopicPartition, dict[int, int]] = {}
    for one in sizes:
        if not one.is_future:
            held.setdefault(one.tp, {})[one.broker] = one.size
    wanted = there = 0
    for tp in moves:
        for broker in running[tp].adding if tp in running else ():
            largest = max(held.get(tp, {}).values(), default=0)
            wanted += largest
            there += held.get(tp, {}).get(broker, 0)
    return Copied(len(moves), sum(move.done for move in moves.values()), wanted, there)
