"""EndTxn v5, row by row: each end raises the epoch (facts §17.12)."""

from typing import Any

import pytest

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.transactions import addition, completion
from logyard.broker.transactions.events import Needs, Producer
from logyard.broker.transactions.raising_end import end, pair_after
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import EPOCH_MAX, Change, Stored, Transaction

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PID, OLD_PID, FRESH_ID, NOW = 7, 6, 99, Now(150, 9_000)
USED_UP = EPOCH_MAX - 1
COMMIT, ABORT = True, False
NONE, BAD_STATE, CONCURRENT = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS
FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
BEGUN = "begun"
STATES = [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_COMMIT,
          State.COMPLETE_ABORT]  # fmt: skip


def known(state: State, epoch: int = 3, *, client_version: int = 2, next_id: int = -1) -> Transaction:
    is_open = State.ONGOING <= state <= State.PREPARE_ABORT
    partitions = frozenset({A, B}) if is_open else frozenset()
    start_ms = -1 if state is State.EMPTY else 4
    stored = Stored(PID, epoch, 100, state, partitions, 5, start_ms, OLD_PID, next_id, client_version)
    return Transaction("x", stored, epoch - 1)


def ask(transaction: Transaction, producer_id: int, epoch: int, commits: bool, fresh_id: int | None = None) -> Any:
    return end(transaction, Producer(producer_id, epoch), NOW, commits=commits, fresh_id=fresh_id)


def ask_below_v5(transaction: Transaction, producer_id: int, epoch: int, commits: bool) -> Any:
    return completion.end(transaction, Producer(producer_id, epoch), NOW, commits=commits)


@pytest.mark.parametrize(
    ("state", "epoch", "abort", "commit"),
    [
        (State.EMPTY, 3, BEGUN, BAD_STATE),
        (State.EMPTY, 2, FENCED, FENCED),
        (State.ONGOING, 3, BEGUN, BEGUN),
        (State.ONGOING, 2, FENCED, FENCED),
        (State.PREPARE_COMMIT, 3, FENCED, FENCED),
        (State.PREPARE_COMMIT, 2, BAD_STATE, CONCURRENT),
        (State.PREPARE_ABORT, 3, FENCED, FENCED),
        (State.PREPARE_ABORT, 2, CONCURRENT, BAD_STATE),
        (State.COMPLETE_COMMIT, 3, BEGUN, BAD_STATE),
        (State.COMPLETE_COMMIT, 2, BAD_STATE, NONE),
        (State.COMPLETE_ABORT, 3, BEGUN, BAD_STATE),
        (State.COMPLETE_ABORT, 2, NONE, FENCED),
    ],
)
def test_the_table(state: State, epoch: int, abort: Any, commit: Any) -> None:
    for commits, expected in ((ABORT, abort), (COMMIT, commit)):
        transaction = known(state)
        decided = ask(transaction, PID, epoch, commits)
        assert (BEGUN if isinstance(decided, Change) else decided) is expected
        assert (transaction.pending is not None) is (expected is BEGUN)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("epoch", [1, 4, 5])
def test_other_epochs_are_fenced_and_other_ids_unknown(state: State, epoch: int) -> None:
    assert ask(known(state), PID, epoch, ABORT) is FENCED
    assert ask(known(state), 8, 3, ABORT) is MAPPING
    assert ask(known(state), OLD_PID, USED_UP, ABORT) is MAPPING


@pytest.mark.parametrize("state", STATES)
def test_what_is_under_way_comes_behind_the_fence(state: State) -> None:
    transaction = known(state)
    transaction.pending = Change(transaction.stored, -1)
    is_ended = state not in (State.EMPTY, State.ONGOING)
    for commits in (COMMIT, ABORT):
        assert ask(transaction, PID, 3, commits) is CONCURRENT
        assert ask(transaction, PID, 2, commits) is (CONCURRENT if is_ended else FENCED)
        assert ask(transaction, PID, 1, commits) is FENCED


@pytest.mark.parametrize("state", [State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_end_below_v5_has_no_epoch_before(state: State) -> None:
    """Else a fenced client that goes by version 2 would get the epoch of one that does not."""
    assert ask(known(state, client_version=0), PID, 2, state is State.COMPLETE_COMMIT) is FENCED


@pytest.mark.parametrize("commits", [COMMIT, ABORT])
def test_an_end_that_is_retried_in_v5_is_the_next_one(commits: bool) -> None:
    """Kafka 4's answers: it goes by the version of the request, and below v5 the epoch stays."""
    transaction = known(State.ONGOING, client_version=0)
    transaction.make(ask_below_v5(transaction, PID, 3, commits))
    assert ask(transaction, PID, 3, commits) is FENCED  # nobody completes it: only where that has failed
    ending = completion.begin_completion(transaction, NOW)
    assert ask(transaction, PID, 3, commits) is CONCURRENT
    assert ask(transaction, PID, 3, not commits) is CONCURRENT
    transaction.make(ending)
    assert ask(transaction, PID, 3, COMMIT) is BAD_STATE
    assert ask(transaction, PID, 3, ABORT).to.epoch == 4


@pytest.mark.parametrize("commits", [COMMIT, ABORT])
def test_an_end_that_is_retried_below_v5_is_fenced(commits: bool) -> None:
    """Its epoch is over, and an answer without a pair could not tell the next one."""
    transaction = known(State.ONGOING)
    transaction.make(ask(transaction, PID, 3, commits))
    assert ask_below_v5(transaction, PID, 3, commits) is FENCED
    ending = completion.begin_completion(transaction, NOW)
    assert ask_below_v5(transaction, PID, 3, commits) is FENCED
    assert ask_below_v5(transaction, PID, 4, commits) is CONCURRENT
    transaction.make(ending)
    assert ask_below_v5(transaction, PID, 3, commits) is FENCED
    assert ask_below_v5(transaction, PID, 4, commits) is NONE
    assert ask_below_v5(transaction, PID, 4, not commits) is BAD_STATE


@pytest.mark.parametrize("commits", [COMMIT, ABORT])
def test_the_end_of_an_open_transaction_raises_the_epoch(commits: bool) -> None:
    transaction = known(State.ONGOING, client_version=0)
    change = ask(transaction, PID, 3, commits)
    prepared = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
    assert change.to == Stored(PID, 4, 100, prepared, frozenset({A, B}), NOW.wall_ms, 4, OLD_PID, -1, 2)
    assert (change.last_epoch, pair_after(change)) == (3, Producer(PID, 4))
    assert transaction.stored.epoch == 3  # until the log has it
    transaction.make(change)
    assert transaction.unmarked == {A, B}
    ended = completion.begin_completion(transaction, NOW)
    transaction.make(ended)
    complete = State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT
    assert transaction.stored == Stored(PID, 4, 100, complete, frozenset(), NOW.wall_ms, 4, OLD_PID, -1, 2)
    assert ask(transaction, PID, 3, commits) is NONE
    assert ask(transaction, PID, 3, not commits) is (BAD_STATE if commits else FENCED)


def test_an_abort_where_nothing_is_open_has_a_start() -> None:
    change = ask(known(State.EMPTY), PID, 3, ABORT)
    assert (change.to.state, change.to.start_ms, change.to.epoch) == (State.PREPARE_ABORT, NOW.wall_ms, 4)


@pytest.mark.parametrize("commits", [COMMIT, ABORT])
def test_behind_the_last_epoch_is_a_new_producer_id(commits: bool) -> None:
    transaction = known(State.ONGOING, USED_UP)
    assert ask(transaction, PID, USED_UP, commits) is Needs.PRODUCER_ID
    change = ask(transaction, PID, USED_UP, commits, FRESH_ID)
    assert (change.to.producer_id, change.to.epoch, change.to.next_id) == (PID, EPOCH_MAX, FRESH_ID)
    assert pair_after(change) == Producer(FRESH_ID, 0)
    transaction.make(change)
    ending = completion.begin_completion(transaction, NOW)
    assert ask(transaction, PID, USED_UP, commits) is CONCURRENT
    assert ask(transaction, FRESH_ID, 0, ABORT) is CONCURRENT  # its client was told of it already
    assert addition.add(transaction, Producer(FRESH_ID, 0), [A], NOW) is CONCURRENT
    assert addition.add(transaction, Producer(FRESH_ID, 1), [A], NOW) is MAPPING
    transaction.make(ending)
    stored = transaction.stored
    assert (stored.producer_id, stored.epoch, stored.previous_id, stored.next_id) == (FRESH_ID, 0, PID, -1)
    assert transaction.last_epoch == USED_UP
    assert ask(transaction, PID, USED_UP, commits) is NONE
    assert ask(transaction, PID, USED_UP, not commits) is (BAD_STATE if commits else FENCED)
    assert ask(transaction, PID, USED_UP - 1, commits) is MAPPING
    assert ask(transaction, OLD_PID, USED_UP, commits) is MAPPING


def test_who_was_fenced_at_the_last_epoch_is_handed_a_new_producer_id() -> None:
    transaction = known(State.ONGOING, USED_UP)
    transaction.make(completion.fence(transaction, NOW, 2))
    transaction.make(completion.begin_completion(transaction, NOW))
    assert (transaction.stored.epoch, transaction.stored.producer_id) == (EPOCH_MAX, PID)
    assert ask(transaction, PID, USED_UP, COMMIT) is FENCED
    assert ask(transaction, PID, USED_UP, ABORT) is Needs.PRODUCER_ID
    change = ask(transaction, PID, USED_UP, ABORT, FRESH_ID)
    assert (change.to.epoch, change.to.state, pair_after(change)) == (
        EPOCH_MAX,
        State.PREPARE_ABORT,
        Producer(FRESH_ID, 0),
    )
    transaction.make(change)
    transaction.make(completion.begin_completion(transaction, NOW))
    assert ask(transaction, PID, USED_UP, ABORT) is NONE
    assert (transaction.stored.producer_id, transaction.stored.epoch) == (FRESH_ID, 0)


def test_a_fenced_client_learns_the_epoch_when_it_aborts() -> None:
    transaction = known(State.ONGOING)
    change = completion.fence(transaction, NOW, 2)
    assert ask(transaction, PID, 3, ABORT) is CONCURRENT
    transaction.make(change)
    assert ask(transaction, PID, 3, ABORT) is CONCURRENT
    transaction.make(completion.begin_completion(transaction, NOW))
    assert ask(transaction, PID, 3, ABORT) is NONE
    assert ask(transaction, PID, 3, COMMIT) is FENCED  # and not INVALID_TXN_STATE, which ends Streams (KAFKA-20785)
    assert transaction.stored.epoch == 4
