"""Migrating the offsets of old consumers from ZooKeeper to `__consumer_offsets`, for today's consumers.

A group's offset never decreases: a larger one that is committed already stays. So a migration can be repeated, and a
group that old and new consumers have read in turn continues where the last of them ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.admin.groups.groups import DEAD, EMPTY, NONE, BadGroups, Group
from logyard.admin.groups.old_consumers import OldGroup
from logyard.admin.ports import EARLIEST, LATEST
from logyard.broker.model import TopicPartition


class MigrationClient(Protocol):
    """The requests that are used."""

    def describe_group(self, group_id: str) -> Group: ...

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]: ...

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: int = LATEST) -> dict[TopicPartition, int]: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One partition. `stored`: the offset in ZooKeeper; `committed` and `end`: None if there is none; `target`: the
    offset to commit, None if there is nothing to do, for the `reason` given."""

    tp: TopicPartition
    stored: int
    committed: int | None
    target: int | None
    end: int | None
    reason: str = ""

    @property
    def lag(self) -> int | None:
        """The number of records that today's consumers will still read."""
        reached = self.target if self.target is not None else self.committed
        return None if reached is None or self.end is None else max(self.end - reached, 0)


@dataclass(frozen=True, slots=True)
class Migration:
    """The steps for one group."""

    group: str
    steps: tuple[Step, ...]

    @property
    def changes(self) -> dict[TopicPartition, int]:
        return {step.tp: step.target for step in self.steps if step.target is not None}

    def result(self, *, done: bool) -> str:
        """A sentence that sums up the steps."""
        changed, kept = len(self.changes), sum(step.reason == _THERE for step in self.steps)
        left = len(self.steps) - changed - kept
        verb = ("was" if changed == 1 else "were") if done else "would be"
        parts = [f"{_count(changed)} {verb} taken over"]
        parts += [f"{kept} {'is' if kept == 1 else 'are'} there already"] if kept else []
        parts += [f"{left} cannot be taken over"] if left else []
        lags = [step.lag for step in self.steps if step.lag is not None]
        hint = "" if done or not changed else "; add --execute to do it"
        return f"Group '{self.group}': {', '.join(parts)}; lag {sum(lags)}{hint}."


_THERE = "is there already"


def plan(client: MigrationClient, group: OldGroup, known: Mapping[str, int]) -> Migration:
    """Decide for each of the group's offsets; `known` has the number of partitions of the cluster's topics.

    Raises BadGroups if the group has members among today's consumers, ApiError, ClusterUnreachable.
    """
    today = client.describe_group(group.name)
    if today.state not in (EMPTY, DEAD):
        raise BadGroups(f"Group '{group.name}' is in use ({today.state}): stop its consumers first")
    there = [tp for tp in sorted(group.offsets) if tp.partition < known.get(tp.topic, 0)]
    committed = client.group_offsets(group.name) if today.state != DEAD else {}
    starts = client.offsets(there, EARLIEST) if there else {}
    ends = client.offsets(there) if there else {}
    steps = [
        _step(tp, group.offsets[tp], committed.get(tp), (starts.get(tp), ends.get(tp))) for tp in sorted(group.offsets)
    ]
    return Migration(group.name, tuple(steps))


def _step(tp: TopicPartition, stored: int, committed: int | None, log: tuple[int | None, int | None]) -> Step:
    start, end = log
    if start is None or end is None:
        return Step(tp, stored, committed, None, None, "the partition does not exist, or has no leader")
    if stored < 0:
        return Step(tp, stored, committed, None, end, "it is not a valid offset")
    if stored > end:
        return Step(tp, stored, committed, None, end, "it is past the end of the log")
    target = max(stored, start)  # if retention has deleted the next record, the first one that is left
    if committed is not None and committed >= target:
        return Step(tp, stored, committed, None, end, _THERE)
    return Step(tp, stored, committed, target, end)


def table(migrations: Sequence[Migration]) -> list[str]:
    """A line for each offset."""
    head = ("GROUP", "TOPIC", "PARTITION", "ZOOKEEPER-OFFSET", "COMMITTED-OFFSET", "NEW-OFFSET", "LAG", "NOTE")
    rows: list[tuple[str, ...]] = [head]
    for migration in migrations:
        for step in migration.steps:
            numbers = [_text(n) for n in (step.stored, step.committed, step.target, step.lag)]
            rows.append((migration.group, step.tp.topic, str(step.tp.partition), *numbers, step.reason))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    return ["", *(" ".join(c.ljust(w) for c, w in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows)]


def _text(number: int | None) -> str:
    return NONE if number is None else str(number)


def _count(number: int) -> str:
    return f"{number} offset" if number == 1 else f"{number} offsets"
