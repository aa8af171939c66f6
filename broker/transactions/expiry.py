"""Transactional ids that nobody uses any more (facts §17.1)."""

from logyard.broker.clock import Now
from logyard.broker.transactions.states import ENDED, State
from logyard.broker.transactions.transaction import Change, Transaction


def is_expired(transaction: Transaction, now: Now, expiration_ms: int) -> bool:
    """Whether the id has no transaction, nothing under way, and has not changed for so long by the wall clock."""
    if transaction.pending is not None or transaction.state not in ENDED:
        return False
    return transaction.stored.updated_ms <= now.wall_ms - expiration_ms


def begin_death(transaction: Transaction) -> Change:
    """Return the pending change with which an expired id goes: a record without a value."""
    return transaction.begin(transaction.stored._replace(state=State.DEAD, partitions=frozenset()))
