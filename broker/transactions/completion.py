"""How a transaction ends (facts §17.5): decided by its client, a fence or its time-out, complete with its last marker.

An outcome is decided when PrepareCommit or PrepareAbort is in the log. From then on the completion is pending, until
every partition has its marker and CompleteCommit or CompleteAbort is in the log too. raising_end.py has EndTxn of
`transaction.version` 2.
"""

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.transactions.addition import refuse
from logyard.broker.transactions.events import NO_EPOCH, NO_PRODUCER_ID, Producer
from logyard.broker.transactions.states import DECIDED, State, completed, prepared
from logyard.broker.transactions.transaction import EPOCH_MAX, RAISING_VERSION, Change, Transaction


def end(transaction: Transaction, producer: Producer, now: Now, *, commits: bool) -> Change | ErrorCode:
    """EndTxn below v5: return the change to append; NONE where the transaction has that outcome already.

    INVALID_PRODUCER_ID_MAPPING for another producer id, PRODUCER_FENCED for another epoch, CONCURRENT_TRANSACTIONS
    while something is under way, INVALID_TXN_STATE where there is no transaction, or one with the other outcome.
    """
    refusal = refuse(transaction, producer)
    if refusal is not None:
        return refusal
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is State.ONGOING:
        state = prepared(commits=commits)
        return transaction.begin(transaction.stored._replace(state=state, updated_ms=now.wall_ms, client_version=0))
    if transaction.state is completed(commits=commits):
        return ErrorCode.NONE
    is_same = transaction.state is prepared(commits=commits)
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE


def fence(transaction: Transaction, now: Now, version: int = 0) -> Change:
    """Return the change that aborts an open transaction and raises its epoch.

    The change is pending: the caller has seen that nothing else is. With `transaction.version` 2 this is an end like
    any other: a client whose transaction timed out learns the epoch when it asks for its abort, or for an
    initialization, and goes on. Below, the epoch is raised at once, and whoever had the one before is fenced for good.
    """
    if version >= RAISING_VERSION:
        return _raise_and_abort(transaction, now)
    transaction.raise_epoch()
    to = transaction.stored._replace(state=State.PREPARE_ABORT, updated_ms=now.wall_ms, client_version=0)
    return transaction.begin(to, last_epoch=NO_EPOCH, is_fence=True)


def _raise_and_abort(transaction: Transaction, now: Now) -> Change:
    stored = transaction.stored
    to = stored._replace(
        epoch=min(stored.epoch + 1, EPOCH_MAX),
        state=State.PREPARE_ABORT,
        updated_ms=now.wall_ms,
        client_version=RAISING_VERSION,
    )
    return transaction.begin(to, last_epoch=to.epoch - 1, is_fence=True)


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
    ended = stored._replace(state=state, partitions=frozenset(), updated_ms=now.wall_ms)
    if stored.next_id != NO_PRODUCER_ID:
        ended = ended._replace(producer_id=stored.next_id, epoch=0, next_id=NO_PRODUCER_ID)
    return transaction.begin(ended)
