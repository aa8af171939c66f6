"""Committed offsets and lag of groups: read for BUDGET_S at a time, the least recently read group first."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from logyard.admin.cluster.snapshot import ClusterSnapshot, GroupView
from logyard.admin.errors import ApiError, LogyardError
from logyard.admin.groups.groups import DEAD, Group
from logyard.admin.ports import EARLIEST, LATEST, ClusterUnreachable, DescribingClient
from logyard.broker.model import TopicPartition

BUDGET_S = 5.0
PARTITIONS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Lag:
    """`committed`: group → partition → offset; `round`: the number of the read that had it; `ends`: partition → offset.

    `uncommitted`: group → the partitions without a commit of the topics that it reads; `starts`: the first offsets of
    these. `number`: how many reads there were; `problem`: the first error of the last one.
    """

    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    round: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    number: int = 0
    problem: str | None = None
    uncommitted: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of(self, group: str) -> dict[TopicPartition, int | None] | None:
        """Records not consumed yet, by partition (None: its leader did not answer); None: the group is not read yet."""
        committed = self.committed.get(group)
        if committed is None:
            return None
        return {tp: _behind(self.ends.get(tp), offset) for tp, offset in sorted(committed.items())}

    def unread(self, group: str) -> dict[TopicPartition, int | None]:
        """All records of the partitions for which the group has committed nothing (None: their leader did not answer).

        Whether the group will read them is decided by its consumers' `auto.offset.reset`, which no broker knows.
        """
        return {tp: records(self.starts.get(tp), self.ends.get(tp)) for tp in self.uncommitted.get(group, ())}


def records(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else max(end - start, 0)


def without_commit(
    topics: Iterable[str], committed: Collection[TopicPartition], snapshot: ClusterSnapshot
) -> list[TopicPartition]:
    """The partitions of these topics, and of those that have commits, without a commit."""
    named = sorted({*topics, *(tp.topic for tp in committed)})
    return [tp for tp, _ in snapshot.partitions(named) if tp not in committed]


def total(lags: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None where none is."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def read_lag(
    client: DescribingClient,
    groups: Sequence[GroupView],
    snapshot: ClusterSnapshot,
    before: Lag | None,
    clock: Callable[[], float] = time.monotonic,
) -> Lag:
    """Read groups for BUDGET_S at most; those that are not reached keep what `before` has."""
    before = before or Lag()
    deadline = clock() + BUDGET_S
    number = before.number + 1
    topics = {group.group_id: group.topics for group in groups}
    committed = {group: before.committed[group] for group in topics if group in before.committed}
    rounds = {group: before.round[group] for group in committed}
    problem: str | None = None
    for group in sorted(topics, key=lambda name: rounds.get(name, 0)):
        if clock() >= deadline:
            break
        try:
            committed[group] = client.group_offsets(group)
        except (ApiError, ClusterUnreachable) as refusal:
            # Its coordinator may be the one broker that this machine does not reach: the others' groups are read.
            problem = problem or f"group {group}: {refusal}"
        rounds[group] = number
    uncommitted = {group: without_commit(topics[group], offsets, snapshot) for group, offsets in committed.items()}
    open_ones = {tp for partitions in uncommitted.values() for tp in partitions}
    silent: set[int] = set()
    ends = read_ends(client, {tp for offsets in committed.values() for tp in offsets} | open_ones, snapshot, silent)
    starts = _read_starts(client, open_ones, snapshot, silent)
    rounds = {group: rounds[group] for group in committed}
    return Lag(committed, rounds, ends, number, problem, uncommitted, starts)


def read_ends(
    client: DescribingClient,
    partitions: Collection[TopicPartition],
    snapshot: ClusterSnapshot,
    silent: set[int],
    timestamp: int = LATEST,
) -> dict[TopicPartition, int]:
    """End (or first) offsets of the partitions with a living leader: asking for others would end in a time-out.

    Leaders that do not answer this machine are added to `silent`; their partitions, and those of leaders in it, are
    left out. Raises ClusterUnreachable where no leader tells anything.
    """
    leaders = {tp: view.leader for tp, view in snapshot.partitions(sorted({tp.topic for tp in partitions}))}
    living = snapshot.brokers.keys() - silent
    led = [tp for tp in sorted(partitions) if leaders.get(tp, -1) in living][:PARTITIONS_MAX]
    if not led:
        return {}
    told = client.told_offsets({tp: leaders[tp] for tp in led}, timestamp)
    silent |= told.silent
    if not told.offsets:
        raise ClusterUnreachable(next(iter(told.untold.values())))
    return dict(told.offsets)


def _read_starts(
    client: DescribingClient, partitions: Collection[TopicPartition], snapshot: ClusterSnapshot, silent: set[int]
) -> dict[TopicPartition, int]:
    """First offsets of the few partitions without a commit. That no leader of these tells anything (one is just being
    elected, or the topic was deleted) is no reason to show no lag of all the others."""
    try:
        return read_ends(client, partitions, snapshot, silent, EARLIEST)
    except ClusterUnreachable:
        return {}


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group with its committed offsets; `ends` is None where they could not be read (`problem` says why).

    `starts`: the first offsets of the partitions that it reads and has committed nothing for.
    """

    group: Group
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int] | None
    problem: str | None = None
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    uncommitted: Sequence[TopicPartition] = ()


def read_group(client: DescribingClient, name: str, snapshot: ClusterSnapshot) -> GroupDetail:
    """Describe a group and read its offsets. Raises ApiError, ClusterUnreachable."""
    group = client.describe_group(name)
    if group.state == DEAD:
        return GroupDetail(group, {}, {})
    committed = client.group_offsets(name)
    assigned = {tp for member in group.members for tp in member.partitions}
    uncommitted = without_commit({tp.topic for tp in assigned}, committed, snapshot)
    try:
        silent: set[int] = set()
        ends = read_ends(client, assigned | set(committed) | set(uncommitted), snapshot, silent)
        starts = _read_starts(client, uncommitted, snapshot, silent)
    except LogyardError as problem:
        return GroupDetail(group, committed, None, str(problem), {}, uncommitted)
    return GroupDetail(group, committed, ends, None, starts, uncommitted)


def _behind(end: int | None, committed: int) -> int | None:
    return None if end is None else max(end - committed, 0)
