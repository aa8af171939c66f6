"""What a group coordinator is asked and what it answers, free of any wire version (facts §16)."""

from dataclasses import dataclass, field

from logyard.broker.errors import ErrorCode

# The place of one caller that waits for its answer; the runner knows whose it is.
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
    # v4+ of a dynamic member: the first join is answered with an id to come back with (KIP-394).
    needs_known_id: bool = False
    # v9+: a static leader that only came back is told not to assign anew (KIP-814).
    can_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a Join; `members` is filled for the leader only."""

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
    """A SyncGroup request; `assignments` comes from the leader only."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
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
    """Who commits: generation -1 without a member and instance where the client does not say."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    @property
    def is_unnamed(self) -> bool:
        return not self.member_id and self.instance_id is None


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """One partition of an OffsetCommit. `expire_ms` is the explicit expiry of old clients, -1 for none."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1


@dataclass(frozen=True, slots=True)
class MemberDescription:
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
