"""InitProducerId of a transactional id: which pair of producer id and epoch its client goes on with (facts §17.2)."""

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.transactions.completion import fence
from logyard.broker.transactions.events import NO_EPOCH, Initialize, Needs, Producer
from logyard.broker.transactions.states import DECIDED, State
from logyard.broker.transactions.transaction import EPOCH_MAX, Change, Stored, Transaction, is_used_up


def new_transaction(request: Initialize, producer_id: int, now: Now) -> Transaction:
    """An id that nobody has used: in memory only, until its first change is in the log."""
    stored = Stored(producer_id, NO_EPOCH, request.timeout_ms, State.EMPTY, updated_ms=now.wall_ms)
    return Transaction(request.transactional_id, stored)


def initialize(
    transaction: Transaction, request: Initialize, now: Now, fresh_id: int | None = None, *, version: int = 0
) -> Change | ErrorCode | Needs:
    """Return the change to append, or why there is none. `version` is the cluster's `transaction.version`.

    CONCURRENT_TRANSACTIONS while something is under way; PRODUCER_FENCED for a pair that is not the client's last.
    A change that is a fence is answered with CONCURRENT_TRANSACTIONS too once it is appended. `Needs.PRODUCER_ID`:
    ask again with a `fresh_id`.
    """
    known = request.known
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known is not None and not _may_know(transaction, known):
        return ErrorCode.PRODUCER_FENCED
    if transaction.state in DECIDED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is State.ONGOING:
        return fence(transaction, now, version)
    return _next_pair(transaction, request, now, fresh_id)


def _may_know(transaction: Transaction, known: Producer) -> bool:
    """Whether the pair is not that of a client which others have replaced; its epoch is looked at later."""
    if transaction.stored.epoch == NO_EPOCH or known.producer_id == transaction.stored.producer_id:
        return True
    return known.producer_id == transaction.stored.previous_id and is_used_up(known.epoch)


def _next_pair(
    transaction: Transaction, request: Initialize, now: Now, fresh_id: int | None
) -> Change | ErrorCode | Needs:
    stored, known = transaction.stored, request.known
    is_current = known is not None and known == Producer(stored.producer_id, stored.epoch)
    producer_id, epoch, last_epoch = stored.producer_id, stored.epoch + 1, NO_EPOCH
    # A fence may have taken the largest epoch from the client that had the one before. Nobody gets that epoch.
    is_fenced = known is not None and stored.epoch == EPOCH_MAX and known.epoch == transaction.last_epoch != NO_EPOCH
    if is_used_up(stored.epoch) and (known is None or is_current or is_fenced):
        if fresh_id is None:
            return Needs.PRODUCER_ID
        producer_id, epoch = fresh_id, 0
        last_epoch = NO_EPOCH if known is None else known.epoch
    elif known is not None and (is_current or stored.epoch == NO_EPOCH):
        last_epoch = stored.epoch
    elif known is not None and known.epoch == transaction.last_epoch != NO_EPOCH:
        epoch, last_epoch = stored.epoch, transaction.last_epoch  # a retry, whose answer was lost
    elif known is not None:
        return ErrorCode.PRODUCER_FENCED
    to = Stored(producer_id, epoch, request.timeout_ms, State.EMPTY, updated_ms=now.wall_ms)
    return transaction.begin(to, last_epoch=last_epoch)
