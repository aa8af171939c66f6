"""EndTxn, time-outs and expiry, row by row (facts §17.1, §17.5)."""

import pytest

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.transactions import completion, expiry
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Change, Stored, Transaction

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OWN, NOW = Producer(7, 3), Now(150, 9_000)
COMMIT, ABORT = True, False
NONE, BAD_STATE, CONCURRENT = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS


def known(state: State, deadline_ms: int | None = None) -> Transaction:
    is_open = State.ONGOING <= state <= State.PREPARE_ABORT
    stored = Stored(7, 3, 100, state, frozenset({A, B} if is_open else ()), 5, -1 if state is State.EMPTY else 4)
    return Transaction("x", stored, deadline_ms=deadline_ms)


@pytest.mark.parametrize(
    ("state", "commits", "code"),
    [
        (State.EMPTY, COMMIT, BAD_STATE),
        (State.EMPTY, ABORT, BAD_STATE),
        (State.COMPLETE_COMMIT, COMMIT, NONE),
        (State.COMPLETE_COMMIT, ABORT, BAD_STATE),
        (State.COMPLETE_ABORT, ABORT, NONE),
        (State.COMPLETE_ABORT, COMMIT, BAD_STATE),
        (State.PREPARE_COMMIT, COMMIT, CONCURRENT),
        (State.PREPARE_COMMIT, ABORT, BAD_STATE),
        (State.PREPARE_ABORT, ABORT, CONCURRENT),
        (State.PREPARE_ABORT, COMMIT, BAD_STATE),
    ],
)
def test_an_end_where_nothing_is_open(state: State, commits: bool, code: ErrorCode) -> None:
    assert completion.end(known(state), OWN, NOW, commits=commits) is code


@pytest.mark.parametrize(("commits", "state"), [(COMMIT, State.PREPARE_COMMIT), (ABORT, State.PREPARE_ABORT)])
def test_the_end_of_an_open_transaction(commits: bool, state: State) -> None:
    transaction = known(State.ONGOING)
    change = completion.end(transaction, OWN, NOW, commits=commits)
    assert isinstance(change, Change)
    assert change.to == Stored(7, 3, 100, state, frozenset({A, B}), NOW.wall_ms, 4)
    transaction.make(change)
    assert transaction.unmarked == {A, B}
    ended = completion.begin_completion(transaction, NOW)
    complete = State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT
    assert ended.to == Stored(7, 3, 100, complete, frozenset(), NOW.wall_ms, 4)
    assert completion.end(transaction, OWN, NOW, commits=commits) is CONCURRENT
    assert completion.end(transaction, OWN, NOW, commits=not commits) is CONCURRENT


@pytest.mark.parametrize("state", sorted(set(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}))
def test_another_producer_is_refused_first(state: State) -> None:
    transaction = known(state)
    transaction.pending = Change(transaction.stored, -1)
    for epoch in (2, 4):
        assert completion.end(transaction, Producer(7, epoch), NOW, commits=True) is ErrorCode.PRODUCER_FENCED
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert completion.end(transaction, Producer(8, 3), NOW, commits=True) is mapping
    assert completion.end(transaction, OWN, NOW, commits=True) is CONCURRENT


def test_a_stored_fence_may_be_raised_again_by_the_next() -> None:
    transaction = known(State.ONGOING)
    transaction.give_up(completion.fence(transaction, NOW))
    change = completion.fence(transaction, NOW)
    assert change.to.epoch == 4
    transaction.make(change)
    transaction.make(completion.begin_completion(transaction, NOW))
    assert not transaction.has_failed_fence


@pytest.mark.parametrize(("state", "deadline", "out"), [
    (State.ONGOING, 149, True),
    (State.ONGOING, 150, False),
    (State.ONGOING, None, False),
    (State.PREPARE_COMMIT, 1, False),
    (State.COMPLETE_ABORT, 1, False),
    (State.EMPTY, 1, False),
])  # fmt: skip
def test_only_an_open_transaction_times_out(state: State, deadline: int | None, out: bool) -> None:
    assert completion.is_timed_out(known(state, deadline), NOW) is out


def test_what_is_under_way_does_not_time_out() -> None:
    transaction = known(State.ONGOING, 1)
    completion.end(transaction, OWN, NOW, commits=True)
    assert not completion.is_timed_out(transaction, NOW)


@pytest.mark.parametrize("state", sorted(set(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}))
def test_only_what_has_ended_expires(state: State) -> None:
    transaction = known(state)
    is_ended = state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    assert expiry.is_expired(transaction, NOW, 8_995) is is_ended
    assert not expiry.is_expired(transaction, NOW, 8_996)
    transaction.pending = Change(transaction.stored, -1)
    assert not expiry.is_expired(transaction, NOW, 1)


def test_an_id_that_was_never_written_expires_too() -> None:
    transaction = Transaction("x", Stored(7, -1, 100, State.EMPTY, updated_ms=5))
    assert expiry.is_expired(transaction, NOW, 100)
    assert expiry.begin_death(transaction).state is State.DEAD
