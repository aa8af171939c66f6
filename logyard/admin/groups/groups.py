"""Consumer groups as kafka-consumer-groups shows them: tables of offsets, members and states. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition

STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
STATES = (*REBALANCING[:2], STABLE, DEAD, EMPTY, *REBALANCING[2:])
NONE = "-"


class BadGroups(LogyardError):
    """The request about groups cannot be carried out; the text says why."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    group: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class Member:
    """One member and the partitions assigned to it."""

    consumer_id: str
    client_id: str
    host: str
    instance_id: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """One group. `coordinator`: host:port and id of its broker."""

    name: str
    state: str
    members: tuple[Member, ...] = ()
    assignor: str = ""
    coordinator: str = ""
    coordinator_id: int = -1

    @property
    def notice(self) -> str | None:
        """The warning that is printed with the table, if any."""
        if self.state == EMPTY:
            return f"Consumer group '{self.name}' has no active members."
        if self.state in REBALANCING:
            return f"Warning: Consumer group '{self.name}' is rebalancing."
        return None


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """One partition of a group. `committed` and `end` are None if there is none."""

    tp: TopicPartition
    committed: int | None
    end: int | None
    member: Member | None = None

    @property
    def lag(self) -> int | None:
        return self.end - self.committed if self.end is not None and self.committed is not None else None


def parse_states(text: str) -> list[str]:
    """Parse `Stable, Empty`, in any case. Raises BadGroups."""
    known = {state.lower(): state for state in STATES}
    found = [known.get(part.strip().lower(), "") for part in text.split(",")]
    if not all(found):
        raise BadGroups(f"Invalid state list '{text}'. Valid states are: {', '.join(STATES)}")
    return found


def listing_table(groups: Sequence[GroupListing], *, with_type: bool, with_state: bool) -> list[str]:
    width = max([15, *(len(one.group) for one in groups)]) + 10
    columns = [("GROUP", "group", width)]
    columns += [("TYPE", "type", 20)] if with_type else []
    columns += [("STATE", "state", 20)] if with_state else []
    rows = [tuple(name for name, _, _ in columns), *(tuple(getattr(g, a) for _, a, _ in columns) for g in groups)]
    return [" ".join(cell.ljust(column[2]) for cell, column in zip(row, columns, strict=True)) for row in rows]


def offset_rows(
    group: Group, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRow]:
    """Members' partitions first (members with most partitions first), then committed partitions without a member."""
    owned = sorted((m for m in group.members if m.partitions), key=lambda m: -len(m.partitions))
    rows = [
        OffsetRow(tp, committed.get(tp), ends.get(tp), member) for member in owned for tp in sorted(member.partitions)
    ]
    given = {tp for member in owned for tp in member.partitions}
    return rows + [OffsetRow(tp, committed[tp], ends.get(tp)) for tp in sorted(committed) if tp not in given]


def offsets_table(group: str, rows: Sequence[OffsetRow]) -> list[str]:
    """The table, after an empty line, as scripts expect it."""
    head = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    )
    table = [head]
    for row in rows:
        member = row.member
        owner = (member.consumer_id, member.host, member.client_id) if member else (NONE, NONE, NONE)
        numbers = [NONE if n is None else str(n) for n in (row.committed, row.end, row.lag)]
        table.append((group, row.tp.topic, str(row.tp.partition), numbers[0], numbers[1], numbers[2], *owner))
    widths = [_width(table, 0), _width(table, 1), 10, 15, 15, 15, _width(table, 6), _width(table, 7), 0]
    return ["", *_lines(table, widths)]


def members_table(group: Group, *, verbose: bool) -> list[str]:
    by_instance = any(member.instance_id for member in group.members)
    head = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if by_instance else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    table = [tuple(head)]
    for m in group.members:
        instance = [m.instance_id] if by_instance else []
        table.append((group.name, m.consumer_id, *instance, m.host, m.client_id, str(len(m.partitions))))
    widths = [_width(table, i, 17 if name == "GROUP-INSTANCE-ID" else 15) for i, name in enumerate(head[:-1])]
    lines = [f"{line} " for line in _lines(table, [*widths, 15])]
    if verbose:
        told = ["ASSIGNMENT", *(_assignment(member.partitions) for member in group.members)]
        lines = [line + one for line, one in zip(lines, told, strict=True)]
    return ["", *lines]


def states_table(group: Group) -> list[str]:
    coordinator = f"{group.coordinator}  ({group.coordinator_id})"
    table = [
        ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
        (group.name, coordinator, group.assignor, group.state, str(len(group.members))),
    ]
    return ["", *_lines(table, [max(25, len(coordinator)), 25, 20, 15, 0])]


def reset_table(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    table = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    table += [
        (group, tp.topic, str(tp.partition), str(offset))
        for group, found in offsets.items()
        for tp, offset in sorted(found.items())
    ]
    return ["", *_lines(table, [30, 30, 10, 15])]


def deleted_offsets_table(results: Mapping[TopicPartition, str | None]) -> list[str]:
    table = [("TOPIC", "PARTITION", "STATUS")]
    table += [
        (tp.topic, str(tp.partition), "Successful" if problem is None else f"Error: :{problem}")
        for tp, problem in sorted(results.items())
    ]
    return ["", *_lines(table, [30, 15, 15])]


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    topics: dict[str, list[str]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(str(tp.partition))
    return ", ".join(sorted(f"({','.join(sorted(numbers))})" for numbers in topics.values())) or NONE


def _width(table: Sequence[tuple[str, ...]], column: int, least: int = 15) -> int:
    return max(least, *(len(row[column]) for row in table))


def _lines(table: Iterable[tuple[str, ...]], widths: Sequence[int]) -> list[str]:
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
