"""Records of `__transaction_state` put together, as many as one batch may hold."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from logyard.broker.transactions.ports import KeyValue

# More than a batch and a record have beside their keys and values.
BATCH_OVERHEAD = 128
RECORD_OVERHEAD = 32

T = TypeVar("T")


def in_batches(items: Iterable[T], record: Callable[[T], KeyValue], limit: int) -> Iterator[list[tuple[T, KeyValue]]]:
    """Yield the items with their records, in order, so many at a time that their batch has at most `limit` bytes.

    A record that is larger than that is alone.
    """
    batch: list[tuple[T, KeyValue]] = []
    size = BATCH_OVERHEAD
    for item in items:
        key, value = made = record(item)
        added = RECORD_OVERHEAD + len(key) + len(value or b"")
        if batch and size + added > limit:
            yield batch
            batch, size = [], BATCH_OVERHEAD
        batch.append((item, made))
        size += added
    if batch:
        yield batch
