"""AddPartitionsToTxn, row by row (facts §17.3)."""

import pytest

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.addition import add, verify
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.states import DECIDED, State
from logyard.broker.transactions.transaction import Change, Stored, Transaction

A, B, C = (TopicPartition("t", number) for number in range(3))
OWN, NOW = Producer(7, 3), Now(50, 9_000)
ENDED = [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]
LIVING = sorted(set(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE})


def known(state: State) -> Transaction:
    is_ended = state in ENDED
    stored = Stored(7, 3, 100, state, frozenset() if is_ended else frozenset({A, B}), 5, -1 if is_ended else 4)
    return Transaction("x", stored, deadline_ms=None if is_ended else 30)


@pytest.mark.parametrize("state", LIVING)
@pytest.mark.parametrize(
    ("producer", "code"),
    [
        (Producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(8, 2), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), ErrorCode.PRODUCER_FENCED),
        (Producer(7, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_another_producer_is_refused_first(state: State, producer: Producer, code: ErrorCode) -> None:
    transaction = known(state)
    assert verify(transaction, producer, [A]) == {A: code}
    transaction.pending = Change(transaction.stored, -1)
    assert add(transaction, producer, [A], NOW) is code
    assert verify(transaction, producer, [A]) == {A: code}


@pytest.mark.parametrize("state", LIVING)
def test_what_is_under_way_is_waited_for(state: State) -> None:
    transaction = known(state)
    transaction.pending = Change(transaction.stored, -1)
    assert add(transaction, OWN, [A], NOW) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("state", sorted(DECIDED))
def test_a_decided_transaction_takes_nothing(state: State) -> None:
    assert add(known(state), OWN, [C], NOW) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert verify(known(state), OWN, [A, C]) == dict.fromkeys([A, C], ErrorCode.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize("partitions", [[A], [A, B], []])
def test_what_is_there_already_needs_no_record(partitions: list[TopicPartition]) -> None:
    transaction = known(State.ONGOING)
    assert add(transaction, OWN, partitions, NOW) is ErrorCode.NONE
    assert transaction.pending is None


def test_an_open_transaction_grows_and_keeps_its_start() -> None:
    change = add(known(State.ONGOING), OWN, [B, C], NOW)
    assert isinstance(change, Change)
    assert change.to == Stored(7, 3, 100, State.ONGOING, frozenset({A, B, C}), NOW.wall_ms, 4)
    assert change.deadline_ms == 30


@pytest.mark.parametrize("state", ENDED)
def test_the_first_partitions_begin_a_transaction(state: State) -> None:
    transaction = known(state)
    change = add(transaction, OWN, [A, C], NOW)
    assert isinstance(change, Change)
    assert change.to == Stored(7, 3, 100, State.ONGOING, frozenset({A, C}), NOW.wall_ms, NOW.wall_ms)
    transaction.make(change)
    assert (transaction.state, transaction.deadline_ms) == (State.ONGOING, NOW.ms + 100)


def test_verification_tells_each_partition_and_does_not_mind_what_is_pending() -> None:
    transaction = known(State.ONGOING)
    add(transaction, OWN, [C], NOW)
    assert verify(transaction, OWN, [A, C]) == {A: ErrorCode.NONE, C: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("state", ENDED)
def test_no_partition_is_in_a_transaction_that_is_not_open(state: State) -> None:
    assert verify(known(state), OWN, [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}
