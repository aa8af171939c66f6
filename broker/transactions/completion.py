"""How a transaction ends (facts §17.5): decided by its client, a fence or its time-out, complete with its last marker.

An outcome is decided when PrepareCommit or PrepareAbort is in the log. From then on the completion is pending, until
every partition has its marker and CompleteCommit or CompleteAbort is in the log too.
"""

from dataclasses import replace

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.transactions.addition import refuse
from logyard.broker.transactions.events import NO_EPOCH, Producer
from logyard.broker.transactions.states import DECIDED, State, completed, prepared
from logyard.broker.transactions.transaction import Change, Transaction


def end(transaction: Transaction, producer: Producer, now: Now, *, commits: bool) -> Change | ErrorCode:
    """EndTxn: return the change to append; NONE where the transaction has that outcome already.

    INVALID_PRODUCER_ID_MAPPING for another producer id, PRODUCER_FENCED for another epoch, CONCURRENT_TRANSACTIONS
    while something is under way, INVALID_TXN_STATE where there is no transaction, or one with the other outcome.
    """
    refusal = refuse(transaction, producer)
    if refusal is not None:
        return refusal
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is State.ONGOING:
        return transaction.begin(replace(transaction.stored, state=prepared(commits=commits), updated_ms=now.wall_ms))
    if transaction.state is completed(commits=commits):
        return ErrorCode.NONE
    is_same = transaction.state is prepared(commits=commits)
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE


def fence(transaction: Transaction, now: Now) -> Change:
    """Raise the epoch of an open transaction at once, and return the change that aborts it.

    The change is pending: the caller has seen that nothing else is.
    """
    transaction.raise_epoch()
    to = replace(transaction.stored, state=State.PREPARE_ABORT, updated_ms=now.wall_ms)
    return transaction.begin(to, last_epoch=NO_EPOCH, is_fence=True)


def is_timed_out(transaction: Transaction, now: Now) -> bool:
    """Whether an open transaction with nothing under way has had its time."""
    if transaction.state is not State.ONGOING or transaction.pending is not None:
        return False
    return transaction.deadline_ms is not None and transaction.deadline_ms < now.ms


def begin_completion(transaction: Transaction, now: Now) -> Change:
    """Return the pending change that is to be appended once every partition of a decided transaction has its marker."""
    stored = transaction.stored
    if stored.state in DECIDED:
        transaction.has_failed_fence = False
    state = completed(commits=stored.state is State.PREPARE_COMMIT)
    return transaction.begin(replace(stored, state=state, partitions=frozenset(), updated_ms=now.wall_ms))
