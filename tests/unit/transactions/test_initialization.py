"""InitProducerId, row by row (facts §17.2)."""

from typing import Any

import pytest

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.completion import begin_completion
from logyard.broker.transactions.events import Initialize, Needs, Producer
from logyard.broker.transactions.initialization import initialize, new_transaction
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import EPOCH_MAX, Change, Stored, Transaction

PID, OLD_PID, FRESH_ID, NOW = 7, 6, 99, Now(50, 9_000)
USED_UP = EPOCH_MAX - 1
FENCED, CONCURRENT = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
ENDED = [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]


def known(state: State, epoch: int, last_epoch: int = -1, **fields: Any) -> Transaction:
    partitions = frozenset({TopicPartition("t", 0)}) if state in (1, 2, 3) else frozenset()
    return Transaction("x", Stored(PID, epoch, 100, state, partitions, 5, 4, OLD_PID), last_epoch, **fields)


def ask(
    transaction: Transaction, pair: tuple[int, int] | None = None, fresh_id: int | None = None, version: int = 0
) -> Any:
    request = Initialize("x", 200, Producer(*pair) if pair else None)
    return initialize(transaction, request, NOW, fresh_id, version=version)


@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.COMPLETE_COMMIT])
@pytest.mark.parametrize("pair", [None, (PID, 3), (PID, 9), (5, 5)])
def test_anything_pending_comes_first(state: State, pair: tuple[int, int] | None) -> None:
    transaction = known(state, 3)
    transaction.pending = Change(transaction.stored, -1)
    assert ask(transaction, pair) is CONCURRENT


@pytest.mark.parametrize("state", set(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE})
@pytest.mark.parametrize("pair", [(5, 3), (OLD_PID, 3), (OLD_PID, USED_UP - 1), (5, USED_UP)])
def test_another_producer_id_is_fenced_in_every_state(state: State, pair: tuple[int, int]) -> None:
    assert ask(known(state, 3), pair) is FENCED


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
@pytest.mark.parametrize("pair", [None, (PID, 3), (PID, 2), (OLD_PID, USED_UP)])
def test_a_decided_transaction_is_waited_for(state: State, pair: tuple[int, int] | None) -> None:
    assert ask(known(state, 3), pair) is CONCURRENT


@pytest.mark.parametrize("pair", [None, (PID, 3), (PID, 2), (PID, 9)])
def test_an_open_transaction_is_fenced_at_once_and_aborted(pair: tuple[int, int] | None) -> None:
    transaction = known(State.ONGOING, 3, 2)
    change = ask(transaction, pair)
    assert change.is_fence
    assert (transaction.stored.epoch, transaction.last_epoch, transaction.state) == (4, -1, State.ONGOING)
    assert change.to == Stored(PID, 4, 100, State.PREPARE_ABORT, transaction.stored.partitions, NOW.wall_ms, 4, OLD_PID)


def test_a_fence_of_version_2_keeps_the_epoch_before() -> None:
    transaction = known(State.ONGOING, 3, 2)
    change = ask(transaction, version=2)
    assert (change.to.epoch, change.to.client_version, change.last_epoch) == (4, 2, 3)
    transaction.make(change)
    transaction.make(begin_completion(transaction, NOW))
    decided = ask(transaction, (PID, 3), version=2)
    assert (decided.to.epoch, decided.last_epoch) == (4, 3)  # who timed out goes on; it is no other instance


@pytest.mark.parametrize("version", [0, 1])
def test_a_fence_that_failed_is_not_raised_again(version: int) -> None:
    transaction = known(State.ONGOING, 3)
    transaction.give_up(ask(transaction, version=version))
    assert transaction.stored.epoch == 4
    assert ask(transaction, version=version).to.epoch == 4


def test_a_fence_of_version_2_that_failed_has_raised_nothing() -> None:
    transaction = known(State.ONGOING, 3)
    transaction.give_up(ask(transaction, version=2))
    assert (transaction.stored.epoch, transaction.has_failed_fence) == (3, False)
    assert ask(transaction, version=2).to.epoch == 4


@pytest.mark.parametrize("epoch", [USED_UP, EPOCH_MAX])
def test_a_fence_at_the_last_epoch_takes_the_largest(epoch: int) -> None:
    assert ask(known(State.ONGOING, epoch)).to.epoch == EPOCH_MAX


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize(
    ("epoch", "last", "pair", "expected"),
    [
        (3, 2, None, (PID, 4, -1)),
        (3, -1, (PID, 3), (PID, 4, 3)),
        (3, 2, (PID, 2), (PID, 3, 2)),  # a retry whose answer was lost
        (3, -1, (PID, 2), FENCED),
        (3, 2, (PID, 1), FENCED),
        (3, 2, (PID, 4), FENCED),
        (USED_UP - 1, -1, None, (PID, USED_UP, -1)),
        (USED_UP, 5, None, (FRESH_ID, 0, -1)),
        (USED_UP, 5, (PID, USED_UP), (FRESH_ID, 0, USED_UP)),
        (EPOCH_MAX, -1, None, (FRESH_ID, 0, -1)),
        (USED_UP, USED_UP - 1, (PID, USED_UP - 1), (PID, USED_UP, USED_UP - 1)),  # Kafka fails here
        (USED_UP, 5, (PID, 6), FENCED),  # and here
        (EPOCH_MAX, -1, (PID, USED_UP), FENCED),
        (EPOCH_MAX, USED_UP, (PID, USED_UP), (FRESH_ID, 0, USED_UP)),  # a fence of version 2 took the largest epoch
        (EPOCH_MAX, USED_UP, (PID, 4), FENCED),
        (0, USED_UP, (OLD_PID, USED_UP), (PID, 0, USED_UP)),  # a retry after the id was replaced
        (1, 0, (OLD_PID, USED_UP), FENCED),
        (0, -1, (OLD_PID, USED_UP), FENCED),
        (USED_UP, 4, (OLD_PID, USED_UP), FENCED),
    ],
)
def test_who_goes_on_with_which_pair(
    state: State, epoch: int, last: int, pair: tuple[int, int] | None, expected: Any
) -> None:
    transaction = known(state, epoch, last)
    decided = ask(transaction, pair)
    if decided is Needs.PRODUCER_ID:
        assert transaction.pending is None
        assert expected[0] == FRESH_ID
        decided = ask(transaction, pair, FRESH_ID)
    if not isinstance(expected, tuple):
        assert (decided, transaction.pending) == (expected, None)
        return
    assert (decided.to.producer_id, decided.to.epoch, decided.last_epoch) == expected
    assert decided.to == Stored(*expected[:2], 200, State.EMPTY, frozenset(), NOW.wall_ms, -1, PID)
    transaction.make(decided)
    assert transaction.last_epoch == expected[2]


@pytest.mark.parametrize(("pair", "last"), [(None, -1), ((5, 5), -1), ((PID, 3), -1), ((5, USED_UP), -1)])
def test_an_unknown_id_begins_with_epoch_0(pair: tuple[int, int] | None, last: int) -> None:
    request = Initialize("x", 200, Producer(*pair) if pair else None)
    transaction = new_transaction(request, FRESH_ID, NOW)
    assert (transaction.stored.epoch, transaction.state) == (-1, State.EMPTY)
    change = initialize(transaction, request, NOW)
    assert isinstance(change, Change)
    assert (change.to.producer_id, change.to.epoch, change.last_epoch) == (FRESH_ID, 0, last)
