"""Which transactional ids are ours, and may be served now."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.portions import portions
from logyard.broker.transactions.transaction import Change, Transaction

# How many transactions are looked at in a turn of the event loop; to end one takes up to 0.1 ms.
PER_TURN = 200


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition of `__transaction_state` from an election of this broker to its resignation.

    `coordinator_epoch` is the partition's leader epoch at that election.
    """

    number: int
    coordinator_epoch: int
    transactions: dict[str, Transaction] = field(default_factory=dict)
    is_loaded: bool = False

    async def let_go(self) -> None:
        """Free the transactions in turns: nobody finds them any more, and to free a hundred thousand takes a while."""
        async for _ in portions(self._taken()):
            pass

    def _taken(self) -> Iterator[Transaction]:
        while self.transactions:
            yield self.transactions.popitem()[1]


class OwnedTransactions:
    """The transactional ids of the partitions that this broker leads.

    Whoever has waited for something asks again whether what it holds still counts (`counts`).
    """

    def __init__(self, partitioning: Partitioning) -> None:
        self.partitioning = partitioning
        self._led: dict[int, LedPartition] = {}

    def begin(self, number: int, coordinator_epoch: int) -> LedPartition:
        """This broker leads the partition; `end` was called for what was known of it."""
        self._led[number] = LedPartition(number, coordinator_epoch)
        return self._led[number]

    def end(self, number: int) -> LedPartition | None:
        """Nothing that is known of the partition counts any more. Returns it, if this broker led it."""
        return self._led.pop(number, None)

    def is_led(self, led: LedPartition) -> bool:
        """Whether this election is the partition's last one."""
        return self._led.get(led.number) is led

    def counts(self, led: LedPartition, transaction: Transaction, change: Change) -> bool:
        """Whether the change is still the one that is under way for the id."""
        if not self.is_led(led) or led.transactions.get(transaction.transactional_id) is not transaction:
            return False
        return transaction.is_pending(change)

    def find(self, transactional_id: str) -> LedPartition | ErrorCode:
        """Return the partition that holds the id, or NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS."""
        led = self._led.get(self.partitioning.partition_for(transactional_id))
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        return led if led.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def availability(self, led: LedPartition) -> ErrorCode:
        """Why what an election began can no longer be made."""
        present = self._led.get(led.number)
        is_loading = present is not None and not present.is_loaded
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        return not all(led.is_loaded for led in self._led.values())

    def loaded(self) -> list[LedPartition]:
        """The partitions that may be served."""
        return [led for led in self._led.values() if led.is_loaded]

    def portions(self, led: LedPartition) -> Iterator[list[Transaction]]:
        """Yield the transactions of an election, PER_TURN at a time, for as long as it counts.

        The caller lets a turn of the event loop pass behind each.
        """
        everything = list(led.transactions.values())
        for start in range(0, len(everything), PER_TURN):
            if not self.is_led(led):
                return
            # Some may have been removed meanwhile, and others have come in their places.
            portion = everything[start : start + PER_TURN]
            yield [found for found in portion if led.transactions.get(found.transactional_id) is found]

    def all(self) -> list[Transaction]:
        """Every transaction that may be served."""
        return list(chain.from_iterable(led.transactions.values() for led in self.loaded()))
