"""The book of segment leases: which are granted, renewed, committed, expired or lost (docs/leases.md).

Rule 1: every change of a lease's state is a method here; one that docs/leases.md does not list is refused.
Rule 2: no I/O and no clock of its own: the callers do the work on the disk, and `on_end` tells them of every end.
Rule 3: a replica has at most one living compact lease, and at most LIVING_MAX living leases.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicId, TopicPartition

LIVING_MAX = 32
# The broker's own runs: their leases do not outlive the broker's process.
CLEANER_RUN = "cleaner"
CATCH_UP_RUN = "catch-up"
OWN_RUNS = frozenset({CLEANER_RUN, CATCH_UP_RUN})
REMEMBERED_MS = 10 * 60_000
# More are forgotten earlier: who takes leases and lets them go, again and again, would fill the memory.
REMEMBERED_MAX = 50_000
TTL_MS_MIN = 5_000
TTL_MS_MAX = 600_000
TTL_MS_DEFAULT = 60_000


class LeaseError(LogyardError):
    """A refused request: its code and HTTP status (the table in docs/leases.md), and further keys of the answer."""

    def __init__(self, code: str, status: int, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.extra = extra


class LeaseState(Enum):
    ACTIVE = "active"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "expired"
    LOST = "lost"


LIVING = frozenset({LeaseState.ACTIVE, LeaseState.COMMITTING})


class Purpose(Enum):
    COMPACT = "compact"
    AUDIT = "audit"
    EXPORT = "export"


@dataclass(slots=True)
class Lease:
    """One lease. `log_end_offset` is the end of what it covers: if the log is truncated below it, the lease is lost.

    `expires_at_ms` and `ended_at_ms` are wall-clock times that are shown and stored. The book uses `due_ms`, of the
    monotonic clock: the time when a live lease expires, or when an ended one is forgotten. Once `swapped` is set, the
    commit can only be completed: the lease cannot be lost any more. `topic_id`: None where topics have none.
    """

    lease_id: str
    generation: int
    run_id: str
    purpose: Purpose
    tp: TopicPartition
    leader_epoch: int
    end_offset: int
    log_end_offset: int
    ttl_ms: int
    expires_at_ms: int
    state: LeaseState = LeaseState.ACTIVE
    reason: str | None = None
    ended_at_ms: int = 0
    decision_sha256: str | None = None
    swapped: bool = False
    due_ms: int = 0
    result: dict[str, Any] | None = None
    topic_id: TopicId | None = None

    def is_of(self, topic_id: TopicId | None) -> bool:
        """Whether it may be of that topic, not of an earlier one of the name."""
        return None in (self.topic_id, topic_id) or self.topic_id == topic_id

    @property
    def living(self) -> bool:
        return self.state in LIVING

    def summary(self, broker_id: int) -> dict[str, Any]:
        return {
            "lease_id": self.lease_id,
            "generation": self.generation,
            "state": self.state.value,
            "reason": self.reason,
            "run_id": self.run_id,
            "purpose": self.purpose.value,
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "broker_id": broker_id,
            "expires_at_ms": self.expires_at_ms,
            "result": self.result,
        }


class LeaseBook:
    """All leases of one broker. `on_end` is called once for each lease, when it ends.

    `on_forget` is called when an ended lease is forgotten. `passed_ms` is a monotonic clock; the `now_ms` of the
    methods is wall-clock time.
    """

    def __init__(
        self,
        first_generation: int,
        passed_ms: Callable[[], int],
        on_end: Callable[[Lease], None],
        on_forget: Callable[[Lease], None] = lambda _lease: None,
    ) -> None:
        self._generation = first_generation
        self._passed_ms = passed_ms
        self._on_end = on_end
        self._on_forget = on_forget
        self._leases: dict[str, Lease] = {}
        self._by_replica: dict[TopicPartition, dict[str, Lease]] = {}  # the living ones
        self._answers: dict[TopicPartition, dict[str, Lease]] = {}  # the committed ones
        self._ended: list[tuple[int, int, Lease]] = []  # a heap, by the time when they are forgotten
        self._count_of_ended = 0
        self._next_due_ms = 0  # no living one is due before

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._leases.values()))

    def living(self, tp: TopicPartition) -> list[Lease]:
        """Return the living leases of a replica."""
        return list(self._by_replica.get(tp, {}).values())

    def answers(self, tp: TopicPartition) -> list[Lease]:
        """Return the committed leases of a replica whose jobs may send their commits again."""
        return list(self._answers.get(tp, {}).values())

    def is_being_compacted(self, tp: TopicPartition) -> bool:
        """Whether this replica has a live compact lease: nothing else may delete or clean its segments."""
        return any(lease.purpose is Purpose.COMPACT for lease in self.living(tp))

    def admit(self, tp: TopicPartition, run_id: str, purpose: Purpose, now_ms: int) -> None:
        """End the same run's old lease, then raise LeaseError if a new one may not be granted.

        Raises `commit_in_progress`, `lease_held` or `too_many_leases`.
        """
        for old in self.living(tp):
            if old.run_id == run_id and old.purpose is purpose:
                if old.state is LeaseState.COMMITTING:
                    raise LeaseError(
                        "commit_in_progress", 409, f"lease {old.lease_id} is being committed: wait until it is done"
                    )
                self._end(old, LeaseState.ABORTED, "retaken", now_ms)
        living = self.living(tp)
        if purpose is Purpose.COMPACT:
            for other in living:
                if other.purpose is Purpose.COMPACT:
                    raise LeaseError(
                        "lease_held",
                        409,
                        f"run {other.run_id} compacts {tp} until {other.expires_at_ms} or longer: try again later",
                        run_id=other.run_id,
                        expires_at_ms=other.expires_at_ms,
                    )
        if len(living) >= LIVING_MAX:
            raise LeaseError("too_many_leases", 429, f"{tp} has {LIVING_MAX} living leases: abort some first")

    def grant(
        self,
        lease_id: str,
        tp: TopicPartition,
        run_id: str,
        purpose: Purpose,
        *,
        leader_epoch: int,
        end_offset: int,
        log_end_offset: int,
        ttl_ms: int,
        now_ms: int,
    ) -> Lease:
        """Return a new lease with the next generation; call `admit` first."""
        self._generation += 1
        lease = Lease(
            lease_id,
            self._generation,
            run_id,
            purpose,
            tp,
            leader_epoch,
            end_offset,
            log_end_offset,
            ttl_ms,
            0,
        )
        self._live(lease, now_ms)
        return lease

    def restore(self, lease: Lease, now_ms: int) -> None:
        """Add a lease that survived a restart, live or committed; new leases get larger generations."""
        if lease.living:
            self._live(lease, now_ms)
        else:
            self._leases[lease.lease_id] = lease
            self._remember(lease, max(0, min(lease.ended_at_ms + REMEMBERED_MS - now_ms, REMEMBERED_MS)))
        self._generation = max(self._generation, lease.generation)

    def find(self, lease_id: str) -> Lease:
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseError("unknown_lease", 404, f"lease {lease_id} is not known here: take a new one")
        return lease

    def find_active(self, lease_id: str, generation: int | None = None) -> Lease:
        """Return an ACTIVE lease.

        Raises LeaseError: `unknown_lease`, `wrong_generation`, `commit_in_progress` or `lease_ended`.
        """
        lease = self.find(lease_id)
        if generation is not None and generation != lease.generation:
            raise LeaseError("wrong_generation", 409, f"lease {lease_id} is of generation {lease.generation}")
        if lease.state is LeaseState.COMMITTING:
            raise LeaseError(
                "commit_in_progress", 409, f"lease {lease_id} is being committed: ask GET /leases/{lease_id}"
            )
        if lease.state is not LeaseState.ACTIVE:
            raise lease_ended(lease)
        return lease

    def renew(self, lease: Lease, now_ms: int, ttl_ms: int | None = None) -> None:
        """Restart the time to live, with another length if `ttl_ms` is given."""
        if ttl_ms is not None:
            lease.ttl_ms = ttl_ms
        lease.expires_at_ms = now_ms + lease.ttl_ms
        lease.due_ms = self._passed_ms() + lease.ttl_ms
        self._next_due_ms = min(self._next_due_ms, lease.due_ms)

    def _live(self, lease: Lease, now_ms: int) -> None:
        self.renew(lease, now_ms)
        self._leases[lease.lease_id] = lease
        self._by_replica.setdefault(lease.tp, {})[lease.lease_id] = lease

    def _remember(self, lease: Lease, for_ms: int) -> None:
        lease.due_ms = self._passed_ms() + for_ms
        self._count_of_ended += 1
        heapq.heappush(self._ended, (lease.due_ms, self._count_of_ended, lease))
        if lease.state is LeaseState.COMMITTED and lease.run_id not in OWN_RUNS:
            self._answers.setdefault(lease.tp, {})[lease.lease_id] = lease

    def begin_commit(self, lease: Lease, decision_sha256: str) -> None:
        lease.state, lease.decision_sha256 = LeaseState.COMMITTING, decision_sha256

    def refuse_commit(self, lease: Lease, now_ms: int) -> None:
        """Make the lease ACTIVE again after a check failed and nothing was swapped: the job may send other parts."""
        if lease.state is LeaseState.COMMITTING:
            lease.state = LeaseState.ACTIVE
            self.renew(lease, now_ms)

    def committed(self, lease: Lease, result: dict[str, Any], now_ms: int) -> None:
        lease.result = result
        self._end(lease, LeaseState.COMMITTED, None, now_ms)

    def abort(self, lease: Lease, reason: str, now_ms: int) -> None:
        """End a live lease on request; an ended one stays as it is."""
        if lease.living:
            self._end(lease, LeaseState.ABORTED, reason, now_ms)

    def lose_replica(self, tp: TopicPartition, reason: str, now_ms: int, truncated_to: int | None = None) -> None:
        """End the leases that cover lost data: all of them, or with `truncated_to` those that reach above it."""
        for lease in self.living(tp):
            if truncated_to is None or truncated_to < lease.log_end_offset:
                self.lose(lease, reason, now_ms)

    def leader_changed(self, tp: TopicPartition, leader_epoch: int, now_ms: int) -> None:
        """End the compact leases of other leader epochs: the new leader may have other records (docs/leases.md)."""
        for lease in self.living(tp):
            if lease.purpose is Purpose.COMPACT and lease.leader_epoch != leader_epoch:
                self.lose(lease, f"the leader changed (epoch {leader_epoch})", now_ms)

    def lose(self, lease: Lease, reason: str, now_ms: int) -> None:
        """End a lease whose log or segments are gone, unless its commit has been swapped in."""
        if lease.living and not lease.swapped:
            self._end(lease, LeaseState.LOST, reason, now_ms)

    def expire_due(self, now_ms: int) -> None:
        """End the leases without a heartbeat in their time to live; forget those that ended long ago."""
        passed_ms = self._passed_ms()
        while self._ended and (self._ended[0][0] <= passed_ms or len(self._ended) > REMEMBERED_MAX):
            self._forget(heapq.heappop(self._ended)[2])
        if passed_ms < self._next_due_ms:
            return  # every request asks, and there may be thousands
        for lease in [lease for leases in self._by_replica.values() for lease in leases.values()]:
            if lease.due_ms <= passed_ms and lease.state is LeaseState.ACTIVE:
                self._end(lease, LeaseState.EXPIRED, f"no heartbeat for {lease.ttl_ms} ms", now_ms)
        living = (lease for leases in self._by_replica.values() for lease in leases.values())
        waiting = [lease.due_ms for lease in living if lease.state is LeaseState.ACTIVE]
        self._next_due_ms = min(waiting, default=passed_ms + TTL_MS_MIN)

    def _forget(self, lease: Lease) -> None:
        if self._leases.get(lease.lease_id) is not lease:
            return  # a restart found it twice: its directory, and the answer beside it
        del self._leases[lease.lease_id]
        answers = self._answers.get(lease.tp, {})
        answers.pop(lease.lease_id, None)
        if not answers:
            self._answers.pop(lease.tp, None)
        self._on_forget(lease)

    def _end(self, lease: Lease, state: LeaseState, reason: str | None, now_ms: int) -> None:
        lease.state, lease.reason, lease.ended_at_ms = state, reason, now_ms
        self._remember(lease, REMEMBERED_MS)
        living = self._by_replica.get(lease.tp, {})
        living.pop(lease.lease_id, None)
        if not living:
            self._by_replica.pop(lease.tp, None)
        self._on_end(lease)


def lease_ended(lease: Lease) -> LeaseError:
    """Return the error for a request for a lease that has ended."""
    return LeaseError(
        "lease_ended",
        409,
        f"lease {lease.lease_id} is {lease.state.value} ({lease.reason or 'done'}): take a new one",
        state=lease.state.value,
        reason=lease.reason,
    )
