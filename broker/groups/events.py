"""The requests and answers of a group coordinator, independent of API versions (facts §16).

Those that a group may have for each member are tuples: a frozen dataclass takes four times as long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from logyard.broker.errors import ErrorCode

# Identifies a waiting request; the runner knows which.
Ticket = int


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request. Times are milliseconds; `protocols` are (name, metadata) in the member's order."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    # From v4 on, for dynamic members: the first join gets an id, with which the member joins again (KIP-394).
    needs_known_id: bool = False
    # From v9 on: a static leader that has rejoined is told not to assign again (KIP-814).
    can_skip_assignment: bool = False


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a Join; only the leader gets `members`."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request; only the leader sends `assignments`, by member id."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class Synced(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Leaver:
    """One entry of a LeaveGroup request: by member id, or by instance id with an empty member id."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Committer:
    """The member that commits; generation -1, and no member and instance, if the client does not send them."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    @property
    def is_unnamed(self) -> bool:
        return not self.member_id and self.instance_id is None


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """One partition of an OffsetCommit. `expire_ms` is the expiry that old clients ask for, -1 for none.

    Times are wall-clock milliseconds.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    error: ErrorCode
    group_id: str
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = field(default=())
