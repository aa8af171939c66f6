"""The data of a consumer group and its members; membership.py and rebalance.py change it."""

from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping, ValuesView
from dataclasses import dataclass, field
from enum import Enum

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode, IllegalTransition
from logyard.broker.groups.events import (
    GroupDescription,
    Joined,
    JoinedMember,
    MemberDescription,
    Ticket,
)
from logyard.broker.groups.offsets import GroupOffsets


class GroupState(Enum):
    """States of facts §16; the value is the name Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_FROM = {
    GroupState.PREPARING: {GroupState.STABLE, GroupState.COMPLETING, GroupState.EMPTY},
    GroupState.COMPLETING: {GroupState.PREPARING},
    GroupState.STABLE: {GroupState.COMPLETING},
    GroupState.EMPTY: {GroupState.PREPARING},
    GroupState.DEAD: set(GroupState),
}


@dataclass(slots=True)
class Member:
    """One member. `join_ticket` and `sync_ticket` are its waiting requests, None if there is none.

    The session ends at `deadline_ms`, on the monotonic clock. `awaits_sync`: it is of the present generation, and has
    not yet asked for its assignment. `new_until_ms`, of one that has been in no generation: how long its first join
    may wait, 0 for others.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    deadline_ms: int = 0
    awaits_sync: bool = False
    new_until_ms: int = 0

    @property
    def waits(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")


class Members(MutableMapping[str, Member]):
    """Members by id, in the order in which they joined: one that gets another id keeps its place, at no cost."""

    __slots__ = ("_in_order", "_next_place", "_places")

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._in_order: dict[int, Member] = {}
        self._next_place = 0

    def __getitem__(self, member_id: str) -> Member:
        return self._in_order[self._places[member_id]]

    def __setitem__(self, member_id: str, member: Member) -> None:
        place = self._places.setdefault(member_id, self._next_place)
        self._next_place += 1
        self._in_order[place] = member

    def __delitem__(self, member_id: str) -> None:
        del self._in_order[self._places.pop(member_id)]

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._places

    def __iter__(self) -> Iterator[str]:
        return (member.member_id for member in self._in_order.values())

    def __len__(self) -> int:
        return len(self._in_order)

    def values(self) -> ValuesView[Member]:
        return self._in_order.values()

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a member another id, and return it."""
        member = self[old_id]
        member.member_id = new_id
        self._places[new_id] = self._places.pop(old_id)
        return member


def _names(protocols: Iterable[tuple[str, bytes]]) -> set[str]:
    return {name for name, _ in protocols}


@dataclass(slots=True)
class Group:
    """One group: members (in the order in which they joined), generation and committed offsets."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str | None = None
    members: Members = field(default_factory=Members)
    static_members: dict[str, str] = field(default_factory=dict)
    # Ids that were given with MEMBER_ID_REQUIRED, and that have not been joined with yet; session timeout in ms.
    pending: dict[str, int] = field(default_factory=dict)
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    # Wall-clock time, as it is stored with the group.
    state_since_ms: int = 0
    # For the first rebalance of an empty group, which waits for more members (group.initial.rebalance.delay.ms).
    initial_join: bool = False
    initial_left_ms: int = 0
    joined_meanwhile: bool = False
    # That of the offsets topic which has the group: a name has any length, and to hash it as Java does takes as long.
    partition: int = -1
    # How many members support each protocol: to look at all members for each that joins would take quadratic time.
    _supported: Counter[str] = field(default_factory=Counter)
    # How many members have a join that waits, and how many await their sync, for the same reason.
    joining: int = 0
    unsynced: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, no pending ids and no offsets."""
        return self.state is GroupState.EMPTY and not self.pending and self.offsets.is_hollow

    @property
    def has_only_offsets(self) -> bool:
        """Whether it has nothing but plain offsets: no members, and no commits of open transactions."""
        return self.state is GroupState.EMPTY and not self.pending and not self.offsets.open

    def move(self, state: GroupState, now: Now) -> None:
        """Change the state. Raises IllegalTransition for a change that facts §16 does not list."""
        if self.state not in _FROM[state]:
            raise IllegalTransition(f"group {self.group_id}: {self.state.value} to {state.value}")
        self.state, self.state_since_ms = state, now.wall_ms

    def add(self, member: Member) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(_names(member.protocols))
        self.joining += member.join_ticket is not None
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give the member another id; the order of members stays."""
        member = self.members.rename(old_id, new_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        instance_id = member.instance_id if member is not None else None
        self._count_off(() if member is None else member.protocols)
        self.joining -= member is not None and member.join_ticket is not None
        self.unsynced -= member is not None and member.awaits_sync
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def wait(self, member: Member, ticket: Ticket | None) -> None:
        """This join of one of the members waits now; None: none does."""
        self.joining += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    def await_sync(self, member: Member, *, awaits: bool) -> None:
        """One of the members is to ask for its assignment now, or has."""
        self.unsynced += awaits - member.awaits_sync
        member.awaits_sync = awaits

    def common_protocols(self) -> list[str]:
        """Return the protocols that all members support, in the order of the first member."""
        first = next(iter(self.members.values()), None)
        return [name for name, _ in first.protocols if self._is_common(name)] if first else []

    def offer(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """One of the members has these protocols now."""
        self._count_off(member.protocols)
        member.protocols = protocols
        self._supported.update(_names(protocols))

    def _count_off(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        for name in _names(protocols):
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]

    def _is_common(self, name: str) -> bool:
        return self._supported[name] == len(self.members)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: the type is the same, and one name is common to all."""
        if not self.members:
            return bool(protocol_type) and any(True for _ in names)
        return self.protocol_type == protocol_type and any(self._is_common(name) for name in names)

    def select_protocol(self) -> str:
        """Return the common protocol that most members prefer; of equals the first in the first member's order."""
        candidates = self.common_protocols()
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in votes)
            votes[choice] += 1
        return max(candidates, key=lambda name: votes[name])

    def _roll(self) -> tuple[JoinedMember, ...]:
        """Return all members, for the leader only: doing this for each member would take quadratic time."""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())

    def joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        """Return the answer to a member's join, with the current generation."""
        is_leader = member.member_id == self.leader_id
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader_id or "",
            self._roll() if is_leader else (),
            skip_assignment and is_leader,
        )

    def describe(self) -> GroupDescription:
        settled = self.state is GroupState.STABLE
        return GroupDescription(
            ErrorCode.NONE,
            self.group_id,
            self.state.value,
            self.protocol_type or "",
            (self.protocol or "") if settled else "",
            tuple(
                MemberDescription(
                    m.member_id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    m.metadata(self.protocol) if settled else b"",
                    m.assignment if settled else b"",
                )
                for m in self.members.values()
            ),
        )
