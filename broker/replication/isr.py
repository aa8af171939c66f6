"""Who is in sync: the leader's view of its followers, and the one ISR change that may be pending.

Rule 1: at most one change per partition is pending. Meanwhile the ISR that counts for the high watermark is the
*maximal* one: members to be removed still count, members to be added already do (facts §10, KIP-497).
Rule 2: the committed ISR comes only from the controller: by LeaderAndIsr or as the answer to our change.
Times are milliseconds of a monotonic clock; an offset of -1 is unknown.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from logyard.broker.errors import ErrorCode
from logyard.broker.replication.ports import IsrChangeResult

NEVER_MS = -(2**62)
UNKNOWN_OFFSET = -1


class Heartbeat:
    """When a follower last fetched: shared by all partitions of one fetch session."""

    __slots__ = ("last_fetch_ms",)

    def __init__(self) -> None:
        self.last_fetch_ms = NEVER_MS


class RemoteReplica:
    """What a leader knows of one follower.

    A follower that is idle at the log's end in an incremental session is not updated partition by partition: its
    `heartbeat` is, and `settle_idle` copies that into the fields before the log grows.
    """

    __slots__ = (
        "broker_epoch",
        "heartbeat",
        "id",
        "is_refused",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = NEVER_MS
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.broker_epoch = -1
        self.heartbeat: Heartbeat | None = None
        self.is_refused = False  # the controller refused it as a member of the ISR: it is shutting down

    def record_fetch(self, offset: int, log_start: int, now_ms: int, leader_end: int, broker_epoch: int) -> None:
        """Record a fetch at `offset` (= the follower's log end) while the leader's log ended at `leader_end`.

        A follower is caught up if it has the whole log, or all that there was at its previous fetch (facts §10).
        """
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = max(self.log_start_offset, log_start)
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_ms = now_ms
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.is_refused = False

    def settle_idle(self, leader_end: int) -> None:
        """Before the leader's log grows beyond `leader_end`: apply the session's fetches since then."""
        beat = self.heartbeat
        if beat is not None and self.log_end_offset == leader_end and beat.last_fetch_ms > self.last_fetch_ms:
            self.last_fetch_ms = beat.last_fetch_ms
            self.last_caught_up_ms = max(self.last_caught_up_ms, beat.last_fetch_ms)

    def detach(self, leader_end: int) -> None:
        """The session's heartbeat no longer counts for this partition: it was forgotten, or its last fetch failed."""
        self.settle_idle(leader_end)
        self.heartbeat = None

    def start_epoch(self, now_ms: int, leader_end: int, *, in_isr: bool, new_leader: bool) -> None:
        """Start a new leader epoch: ISR members count as caught up now, other followers as unknown.

        A live session tells nothing of this partition until it has fetched in the new epoch: it may have been told to
        stop.
        """
        self.last_caught_up_ms = now_ms if in_isr else NEVER_MS
        self.heartbeat = None
        self.is_refused = False
        if new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.last_fetch_leader_end = UNKNOWN_OFFSET
            self.broker_epoch = -1
        else:
            self.last_fetch_ms = now_ms if in_isr else NEVER_MS
            self.last_fetch_leader_end = leader_end if in_isr else UNKNOWN_OFFSET

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it is at the leader's log end, or was at most `lag_max_ms` ago."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_max_ms


@dataclass(frozen=True, slots=True)
class PendingChange:
    """An ISR sent to the controller and not yet answered."""

    isr: tuple[int, ...]
    maximal: frozenset[int]
    expands: bool


class InSync:
    """The ISR of one led partition: the committed one, and the pending change."""

    __slots__ = ("committed", "maximal", "pending")

    def __init__(self, committed: Iterable[int] = ()) -> None:
        self.committed: tuple[int, ...] = tuple(committed)
        self.maximal = frozenset(self.committed)
        self.pending: PendingChange | None = None

    def commit(self, isr: Iterable[int]) -> None:
        """The controller has set the ISR; a pending change is over."""
        self.committed = tuple(isr)
        self.maximal = frozenset(self.committed)
        self.pending = None

    def propose_adding(self, broker_id: int) -> PendingChange:
        """Start to add `broker_id`: from now on the high watermark waits for it."""
        assert self.pending is None, "one ISR change at a time"
        isr = (*self.committed, broker_id)
        return self._propose(PendingChange(isr, frozenset(isr), expands=True))

    def propose_removing(self, leaving: Iterable[int]) -> PendingChange:
        """Start to remove `leaving`: until the controller agrees the high watermark waits for them."""
        assert self.pending is None, "one ISR change at a time"
        gone = frozenset(leaving)
        isr = tuple(b for b in self.committed if b not in gone)
        return self._propose(PendingChange(isr, frozenset(self.committed), expands=False))

    def _propose(self, change: PendingChange) -> PendingChange:
        self.pending = change
        self.maximal = change.maximal
        return change

    def withdraw(self) -> None:
        """The controller did not attempt the change: return to the committed ISR."""
        self.commit(self.committed)


def out_of_sync(
    isr: Iterable[int],
    leader: int,
    remotes: dict[int, RemoteReplica],
    leader_end: int,
    now_ms: int,
    lag_max_ms: int,
) -> tuple[int, ...]:
    """Return the members that have fallen behind: not at the log's end, and not there within `lag_max_ms` (facts
    §10)."""
    leaving = []
    for broker_id in isr:
        remote = remotes.get(broker_id)
        if broker_id == leader:
            continue
        if remote is None or not remote.is_caught_up(leader_end, now_ms, lag_max_ms):
            leaving.append(broker_id)
    return tuple(leaving)


def may_join(remote: RemoteReplica, high_watermark: int, epoch_start: int, is_alive: Callable[[int], bool]) -> bool:
    """Whether a follower outside the ISR may join it.

    It must have all committed records, *and* reach this leader's epoch: the high watermark may still be below records
    that were committed before the election (KAFKA-7128). Since 3.9 it must also be alive in the metadata.
    """
    end = remote.log_end_offset
    return end >= high_watermark and end >= epoch_start and is_alive(remote.id)


class Settlement(Enum):
    """What to do with the controller's answer to an ISR change."""

    COMMIT = "take the state it gave"
    WITHDRAW = "return to the committed ISR"
    WAIT = "stay pending until the next LeaderAndIsr"
    RETRY = "send the same change again"
    IGNORE = "the answer is about an epoch that is over"


_NOT_TRIED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_SUPERSEDED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def settle(result: IsrChangeResult, leader_epoch: int, partition_epoch: int) -> Settlement:
    """Return what to do with the controller's answer to the pending change (facts §22).

    OPERATION_NOT_ATTEMPTED and INELIGIBLE_REPLICA mean that nothing was tried. The errors in `_SUPERSEDED` mean that
    the controller has a newer state, which it will send.
    """
    if result.error in _NOT_TRIED:
        return Settlement.WITHDRAW
    if result.error in _SUPERSEDED:
        return Settlement.WAIT
    if result.error is not ErrorCode.NONE:
        return Settlement.RETRY
    if result.leader_epoch != leader_epoch or result.partition_epoch < partition_epoch:
        return Settlement.IGNORE
    return Settlement.COMMIT
