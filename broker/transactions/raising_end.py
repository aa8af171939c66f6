"""EndTxn v5, of clients that go by `transaction.version` 2: each end raises the epoch (KIP-890 part 2, facts §17.12).

What is late of a transaction, its EndTxn or a Produce, has an epoch that is over then, and cannot reach a later one
(KAFKA-17754). So here the same epoch does not tell a retry, as below v5, but the epoch before does.
"""

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.transactions.events import NO_PRODUCER_ID, Needs, Producer
from logyard.broker.transactions.states import DECIDED, ENDED, State, completed, prepared
from logyard.broker.transactions.transaction import (
    EPOCH_MAX,
    RAISING_VERSION,
    Change,
    Stored,
    Transaction,
    is_used_up,
)


def end(
    transaction: Transaction, producer: Producer, now: Now, *, commits: bool, fresh_id: int | None = None
) -> Change | ErrorCode | Needs:
    """Return the change to append; NONE where this is a retry, and the transaction has that outcome.

    INVALID_PRODUCER_ID_MAPPING for another producer id; PRODUCER_FENCED for another epoch than the present one or, of
    what is decided or complete, the one before; CONCURRENT_TRANSACTIONS while something is under way;
    INVALID_TXN_STATE where there is nothing to commit, or for a retry with the other outcome; PRODUCER_FENCED where a
    commit was overtaken by a fence. To abort where nothing is open succeeds: the client does not know whether a
    partition was added. `Needs.PRODUCER_ID`: the epochs are used up, ask again with a `fresh_id`.

    An end below v5 has raised nothing: its retry in v5 is the end of the next transaction.
    """
    if transaction.will_have(producer):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    stored = transaction.stored
    is_retry = _is_retry(stored, producer)
    if producer.producer_id != stored.producer_id and not is_retry:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not is_retry and producer.epoch != stored.epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.pending is not None:
        # The raised pair too: its client has the answer to one end, and asks for the next (KAFKA-18464).
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if is_retry:
        if commits and stored.state is State.COMPLETE_ABORT:
            # A client that retries asks for the same again: this transaction was aborted by a fence (KAFKA-20785).
            return ErrorCode.PRODUCER_FENCED
        is_same = stored.state in (prepared(commits=commits), completed(commits=commits))
        if not is_same:
            return ErrorCode.INVALID_TXN_STATE
        if stored.state in DECIDED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if stored.epoch < EPOCH_MAX:
            return ErrorCode.NONE
        # A fence took the largest epoch, which no client gets: this one is handed a new producer id.
    elif stored.state in DECIDED:
        return ErrorCode.PRODUCER_FENCED
    elif commits and stored.state is not State.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    return _prepare(transaction, now, fresh_id, commits=commits and not is_retry)


def _is_retry(stored: Stored, producer: Producer) -> bool:
    """Whether the pair is the one with which what is decided or complete was asked for, so that it was raised."""
    if stored.state not in (DECIDED | ENDED) - {State.EMPTY} or stored.client_version < RAISING_VERSION:
        return False
    if stored.epoch > 0:
        return producer == Producer(stored.producer_id, stored.epoch - 1)
    return producer == Producer(stored.previous_id, EPOCH_MAX - 1)


def _prepare(transaction: Transaction, now: Now, fresh_id: int | None, *, commits: bool) -> Change | Needs:
    stored = transaction.stored
    next_id = NO_PRODUCER_ID
    if is_used_up(stored.epoch):
        if fresh_id is None:
            return Needs.PRODUCER_ID
        next_id = fresh_id
    to = stored._replace(
        epoch=min(stored.epoch + 1, EPOCH_MAX),
        state=prepared(commits=commits),
        updated_ms=now.wall_ms,
        start_ms=stored.start_ms if stored.state is State.ONGOING else now.wall_ms,
        next_id=next_id,
        client_version=RAISING_VERSION,
    )
    return transaction.begin(to, last_epoch=to.epoch - 1)


def pair_after(change: Change) -> Producer:
    """The pair with which the client goes on after this end."""
    to = change.to
    return Producer(to.producer_id, to.epoch) if to.next_id == NO_PRODUCER_ID else Producer(to.next_id, 0)
