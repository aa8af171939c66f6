"""The state of a reassignment in the output format of kafka-reassign-partitions. Pure."""

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass

from logyard.admin.cluster.snapshot import ReplicaSize
from logyard.admin.reassignment.json_files import Replica
from logyard.admin.reassignment.progress import MoveState
from logyard.broker.model import Assignment, TopicPartition


@dataclass(frozen=True, slots=True)
class DirectoryMove:
    """The directory of one replica: the target, the current one (None: in no live directory), and that of a copy in
    progress.

    `broker_lives`: whether its broker answered.
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
        """Whether there is nothing to wait for; as in Kafka, also if it is in another directory and not moving."""
        return self.broker_lives and self.current is not None and self.future is None


def dir_moves(
    targets: Mapping[Replica, str], sizes: Iterable[ReplicaSize], live: Iterable[int]
) -> dict[Replica, DirectoryMove]:
    alive = frozenset(live)
    places: dict[Replica, dict[bool, str]] = {}
    for one in sizes:
        places.setdefault(Replica(*one.tp, one.broker), {})[one.is_future] = one.log_dir
    return {
        replica: DirectoryMove(
            target, places.get(replica, {}).get(False), places.get(replica, {}).get(True), replica.broker in alive
        )
        for replica, target in targets.items()
    }


def partition_text(states: Iterable[MoveState]) -> str:
    """The lines of `verify` about partitions."""
    lines = ["Status of partition reassignment:"]
    for state in sorted(states, key=lambda state: state.move.tp):
        tp, current, target = state.move.tp, state.current, state.move.target
        if state.is_running:
            lines.append(f"Reassignment of partition {tp} is still in progress.")
        elif current == target:
            lines.append(f"Reassignment of partition {tp} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {tp}, but replica set is {ids(current)} "
                f"rather than {ids(target)}."
            )
    return "\n".join(lines)


def dir_text(moves: Mapping[Replica, DirectoryMove]) -> str:
    return "\n".join(_dir_line(replica, moves[replica]) for replica in in_order(moves))


def _dir_line(replica: Replica, move: DirectoryMove) -> str:
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
    """The lines of `list`."""
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


def plural(things: Sized) -> str:
    return "" if len(things) == 1 else "s"


def in_order(replicas: Iterable[Replica]) -> list[Replica]:
    """By broker, then topic, then partition."""
    return sorted(replicas, key=lambda r: (r.broker, r.topic, r.partition))
