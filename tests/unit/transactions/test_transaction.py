"""The table of states, and what a change may do to a transactional id."""

from itertools import product

import pytest

from logyard.broker.errors import IllegalTransition
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.states import PREVIOUS, STATES, State
from logyard.broker.transactions.transaction import EPOCH_MAX, Stored, Transaction

A = TopicPartition("a", 0)

# facts §17: a state and those it comes from, as since Kafka 4.0.
TABLE = {
    "Empty": "Empty CompleteCommit CompleteAbort",
    "Ongoing": "Ongoing Empty CompleteCommit CompleteAbort",
    "PrepareCommit": "Ongoing",
    "PrepareAbort": "Ongoing PrepareEpochFence Empty CompleteCommit CompleteAbort",
    "CompleteCommit": "PrepareCommit",
    "CompleteAbort": "PrepareAbort",
    "Dead": "Empty CompleteCommit CompleteAbort",
    "PrepareEpochFence": "Ongoing",
}


def transaction(state: State, epoch: int = 3) -> Transaction:
    return Transaction("x", Stored(7, epoch, 100, state, frozenset({A}), 5, 5))


def test_the_table_is_kafkas() -> None:
    assert {STATES[name]: {STATES[n] for n in previous.split()} for name, previous in TABLE.items()} == PREVIOUS
    assert [state.label for state in State] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_only_listed_changes_begin(before: State, after: State) -> None:
    subject, to = transaction(before), Stored(7, 3, 100, after)
    if before in PREVIOUS[after]:
        assert subject.begin(to) is subject.pending
        assert subject.state is before, "not before the log has it"
    else:
        with pytest.raises(IllegalTransition):
            subject.begin(to)
        assert subject.pending is None


def test_one_change_at_a_time() -> None:
    subject = transaction(State.ONGOING)
    first = subject.begin(Stored(7, 3, 100, State.PREPARE_COMMIT))
    with pytest.raises(IllegalTransition):
        subject.begin(Stored(7, 3, 100, State.PREPARE_ABORT))
    assert subject.pending is first


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (7, -1)])
def test_nothing_is_stored_without_a_producer(producer_id: int, epoch: int) -> None:
    with pytest.raises(IllegalTransition):
        transaction(State.EMPTY).begin(Stored(producer_id, epoch, 100, State.ONGOING))


def test_a_change_that_was_given_up_ends_nothing() -> None:
    subject = transaction(State.ONGOING)
    first = subject.begin(Stored(7, 3, 100, State.PREPARE_COMMIT))
    subject.give_up(first)
    second = subject.begin(Stored(7, 3, 100, State.PREPARE_COMMIT))
    subject.give_up(first)
    with pytest.raises(IllegalTransition):
        subject.make(first)
    assert subject.is_pending(second)
    subject.make(second)
    assert (subject.state, subject.pending) == (State.PREPARE_COMMIT, None)


@pytest.mark.parametrize(("producer_id", "epoch"), [(8, 3), (7, 4), (7, 2)])
def test_only_an_initialization_changes_the_producer(producer_id: int, epoch: int) -> None:
    subject = transaction(State.ONGOING)
    change = subject.begin(Stored(producer_id, epoch, 100, State.PREPARE_COMMIT))
    with pytest.raises(IllegalTransition):
        subject.make(change)


def test_the_dead_are_removed_and_not_changed() -> None:
    subject = transaction(State.EMPTY)
    with pytest.raises(IllegalTransition):
        subject.make(subject.begin(Stored(7, 3, 100, State.DEAD)))


@pytest.mark.parametrize(("epoch", "fenced"), [(3, 4), (EPOCH_MAX - 1, EPOCH_MAX), (EPOCH_MAX, EPOCH_MAX)])
def test_a_fence_raises_the_epoch_but_not_past_the_last(epoch: int, fenced: int) -> None:
    subject = transaction(State.ONGOING, epoch)
    subject.last_epoch = 2
    subject.raise_epoch()
    assert (subject.stored.epoch, subject.last_epoch) == (fenced, -1)


@pytest.mark.parametrize("state", set(State) - {State.ONGOING})
def test_only_an_open_transaction_is_fenced(state: State) -> None:
    with pytest.raises(IllegalTransition):
        transaction(state).raise_epoch()
