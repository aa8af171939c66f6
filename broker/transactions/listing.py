"""Which transactions a ListTransactions asks for (facts §17.6)."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Transaction

ANY_DURATION = -1


class Wanted(NamedTuple):
    """Those in one of the states (None: in any), of one of the producers (of any if none is named), and open for longer
    than `duration_ms`, if that is not negative."""

    states: AbstractSet[State] | None = None
    producer_ids: AbstractSet[int] = frozenset()
    duration_ms: int = ANY_DURATION

    def has(self, transaction: Transaction, wall_ms: int) -> bool:
        """Whether it is one of them now. One that is not open has no start: it passes as one that was open for long."""
        stored = transaction.stored
        return (
            (self.states is None or stored.state in self.states)
            and (not self.producer_ids or stored.producer_id in self.producer_ids)
            and (self.duration_ms < 0 or wall_ms - stored.start_ms > self.duration_ms)
        )
