"""One partition of `__transaction_state` read from its start to its end: the transactional ids as they stood.

The last record of an id wins and a null value removes it; a key of a later version is stepped over. The load is done
when all that was read is on the whole ISR: nobody is answered by what an election could still take back.
"""

from collections.abc import Awaitable, Callable

from logyard.broker.clock import Now
from logyard.broker.portions import portions
from logyard.broker.transactions import record_format
from logyard.broker.transactions.events import NO_EPOCH
from logyard.broker.transactions.ports import KeyValue, StateLog
from logyard.broker.transactions.states import DECIDED, ENDED, State
from logyard.broker.transactions.transaction import EPOCH_MAX, RAISING_VERSION, Stored, Transaction

REPLICATED_POLL_S = 0.02
# To copy so many takes as long as to make a transaction.
PARTITIONS_PER_COST = 50


async def load(
    state_log: StateLog, partition: int, sleep: Callable[[float], Awaitable[None]], now: Callable[[], Now]
) -> dict[str, Transaction]:
    """Return every transaction of the partition by its id. Raises StorageError and CorruptData."""
    records: dict[str, Stored] = {}

    def take(record: KeyValue) -> None:
        key, value = record
        transactional_id = record_format.decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            records.pop(transactional_id, None)
        else:
            records[transactional_id] = record_format.decode_value(value)

    end = await state_log.read(partition, take)
    while not state_log.is_replicated(partition, end):
        await sleep(REPLICATED_POLL_S)
    loaded_at = now()
    transactions: dict[str, Transaction] = {}
    async for portion in portions(records.items(), _cost):
        transactions.update((name, _transaction(name, stored, loaded_at)) for name, stored in portion)
    return transactions


def _cost(record: tuple[str, Stored]) -> int:
    return 1 + len(record[1].partitions) // PARTITIONS_PER_COST


def _transaction(transactional_id: str, stored: Stored, now: Now) -> Transaction:
    transaction = Transaction(transactional_id, stored, _last_epoch(stored))
    if stored.state is State.ONGOING:
        passed_ms = max(0, now.wall_ms - stored.start_ms)
        transaction.deadline_ms = now.ms + max(0, stored.timeout_ms - passed_ms)
    if stored.state in DECIDED:
        transaction.unmarked = set(stored.partitions)
    return transaction


def _last_epoch(stored: Stored) -> int:
    """The epoch before, which no record holds: known only where an end has raised it."""
    if stored.client_version < RAISING_VERSION or stored.state not in (DECIDED | ENDED) - {State.EMPTY}:
        return NO_EPOCH
    return stored.epoch - 1 if stored.epoch > 0 else EPOCH_MAX - 1
