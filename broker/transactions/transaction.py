"""What the coordinator knows of one transactional id, and how it changes.

Rule 1: a change is begun, appended to the log, and made only when the log has acknowledged it (facts §17.1). In between
        it is pending, and nothing else may begin.
Rule 2: a change is pending as an object: one that was given up, or that belongs to an earlier load, ends nothing.
        The end of a decided transaction is made when every partition has its marker: until the log has it, what a
        next coordinator would find leads to the same end (unwritten_ends.py).
Rule 3: the epoch of a fence is the exception: below `transaction.version` 2 it is raised when the fence begins, and
        stays so if the append fails.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from logyard.broker.errors import IllegalTransition
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.events import NO_EPOCH, NO_PRODUCER_ID, NO_TIME, Description, Producer
from logyard.broker.transactions.states import DECIDED, ENDED, PREVIOUS, State

EPOCH_MAX = 2**15 - 1
RAISING_VERSION = 2
"""The first `transaction.version` with which each end of a transaction raises the epoch (KIP-890, part 2)."""


def is_used_up(epoch: int) -> bool:
    """Whether a client is given no further epoch of this producer id: the largest one is kept for a fence."""
    return epoch >= EPOCH_MAX - 1


class Stored(NamedTuple):
    """What a record of `__transaction_state` holds. Times are milliseconds by the wall clock, NO_TIME for none.

    `previous_id` was the producer id before `producer_id`; `next_id` takes its place when the transaction is complete,
    NO_PRODUCER_ID if it stays. `client_version` is the `transaction.version` by which the client, or the fence, went.
    Only values of version 1 hold these three.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIME
    start_ms: int = NO_TIME
    previous_id: int = NO_PRODUCER_ID
    next_id: int = NO_PRODUCER_ID
    client_version: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One change that is under way: what is appended, and what is in memory only.

    `deadline_ms` is when the transaction is aborted, on the clock that never goes back.
    """

    to: Stored
    last_epoch: int
    deadline_ms: int | None = None
    is_fence: bool = False

    @property
    def state(self) -> State:
        return self.to.state


@dataclass(slots=True)
class Transaction:
    """One transactional id. `stored` is what the log has acknowledged, but for the raised epoch of a fence and an end.

    `last_epoch` is the one before the last InitProducerId, or before the end that raised it: a retry names it, and
    `stored.previous_id`.
    `unmarked` are the partitions that still need the marker of a decided outcome.
    """

    transactional_id: str
    stored: Stored
    last_epoch: int = NO_EPOCH
    pending: Change | None = None
    unmarked: set[TopicPartition] = field(default_factory=set)
    has_failed_fence: bool = False
    deadline_ms: int | None = None

    @property
    def state(self) -> State:
        return self.stored.state

    def is_pending(self, change: Change) -> bool:
        return self.pending is change

    def will_have(self, producer: Producer) -> bool:
        """Whether the pair is another than the present one, and that of the pending change."""
        if self.pending is None or producer == Producer(self.stored.producer_id, self.stored.epoch):
            return False
        return producer == Producer(self.pending.to.producer_id, self.pending.to.epoch)

    def begin(
        self, to: Stored, *, last_epoch: int | None = None, deadline_ms: int | None = None, is_fence: bool = False
    ) -> Change:
        """Make a change pending; raises IllegalTransition where another is, or where PREVIOUS does not list it."""
        if self.pending is not None:
            raise IllegalTransition(
                f"{self.transactional_id}: {to.state.label} while {self.pending.state.label} is under way"
            )
        self._check(to.state)
        if to.state is not State.DEAD and (to.epoch < 0 or to.producer_id < 0):
            raise IllegalTransition(
                f"{self.transactional_id}: {to.state.label} with producer {to.producer_id}, epoch {to.epoch}"
            )
        is_new_id = to.state is State.EMPTY or to.producer_id != self.stored.producer_id
        previous_id = self.stored.producer_id if is_new_id else self.stored.previous_id
        if to.previous_id != previous_id:
            to = to._replace(previous_id=previous_id)
        last = self.last_epoch if last_epoch is None else last_epoch
        self.pending = Change(to, last, deadline_ms, is_fence)
        return self.pending

    def _check(self, state: State) -> None:
        if self.state not in PREVIOUS[state]:
            raise IllegalTransition(f"{self.transactional_id}: {self.state.label} to {state.label}")

    def raise_epoch(self) -> None:
        """Fence whoever has the present epoch: at once, whatever becomes of the append behind it (Rule 3).

        An epoch that a failed fence has raised already is nobody's, and neither is the largest one.
        """
        self._check(State.PREPARE_EPOCH_FENCE)
        if not self.has_failed_fence and self.stored.epoch < EPOCH_MAX:
            self.stored = self.stored._replace(epoch=self.stored.epoch + 1)
        self.last_epoch = NO_EPOCH

    def make(self, change: Change) -> None:
        """The log has acknowledged the pending change, or it is an end; raises IllegalTransition for any other."""
        if not self.is_pending(change) or change.state is State.DEAD:
            raise IllegalTransition(f"{self.transactional_id}: {change.state.label} is not under way")
        if not self._may_have(change.to):
            raise IllegalTransition(f"{self.transactional_id}: another producer in {change.state.label}")
        self.pending = None
        self.stored = change.to
        self.last_epoch = change.last_epoch
        self.deadline_ms = change.deadline_ms
        self.unmarked = set(change.to.partitions) if change.state in DECIDED else set()

    def _may_have(self, to: Stored) -> bool:
        """Whether the pair may be that of the next state: only an InitProducerId changes it, and version 2."""
        stored = self.stored
        if to.state is State.EMPTY or (to.producer_id, to.epoch) == (stored.producer_id, stored.epoch):
            return True
        if to.client_version < RAISING_VERSION:
            return False
        if to.state in DECIDED:
            return (to.producer_id, to.epoch) == (stored.producer_id, stored.epoch + 1)
        return to.state in ENDED and stored.next_id >= 0 and (to.producer_id, to.epoch) == (stored.next_id, 0)

    def describe(self) -> Description:
        """What tools are told. A decided transaction lists the partitions that still need their marker."""
        stored = self.stored
        partitions = frozenset(self.unmarked) if stored.state in DECIDED else stored.partitions
        producer = Producer(stored.producer_id, stored.epoch)
        return Description(
            self.transactional_id,
            state=stored.state.label,
            timeout_ms=stored.timeout_ms,
            start_ms=stored.start_ms,
            producer=producer,
            partitions=partitions,
        )

    def give_up(self, change: Change) -> None:
        """The append has failed: the old state holds on, though the record may yet be committed."""
        if not self.is_pending(change):
            return
        self.pending = None
        # A fence of version 2 raises nothing before it is in the log.
        has_raised = change.is_fence and change.to.epoch == self.stored.epoch
        self.has_failed_fence = self.has_failed_fence or has_raised
