"""Which transactional batches a cleaner drops, and when a transaction's marker has nothing left to mark.

Rule 1: data of an aborted transaction goes at once and never supersedes anything.
Rule 2: a marker may go once no batch of its transaction is left in the log before it (an empty batch still counts).
Rule 3: markers are never compared by key.
Source: facts §13, §17; KIP-534.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

ABORT_MARKER = 0
COMMIT_MARKER = 1


class AbortedTransaction(NamedTuple):
    """One entry of a transaction index: the producer, the first and last offset (the abort marker's), the LSO then."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int = -1


class Fate(Enum):
    """What becomes of a whole batch before any key is looked at."""

    RECORDS = "its records are judged one by one"
    ABORTED = "every record goes"
    MARKER = "a marker that still has something to mark: stays"
    SPENT_MARKER = "a marker whose transaction is gone: goes once its horizon has passed"


class TransactionFilter:
    """Walks a log's batches in offset order and tells the fate of each transactional or control batch."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda t: (t.first_offset, t.last_offset)))
        # producer id -> offset of the abort marker, and whether a batch of the transaction has been met. The marker
        # itself may be
        # gone while the index still lists it: what lies behind its offset is another transaction.
        self._aborting: dict[int, tuple[int, bool]] = {}
        self._committing: set[int] = set()

    def data(self, producer_id: int, last_offset: int) -> Fate:
        """Judge a transactional data batch."""
        self._advance(last_offset)
        marker_offset, _met = self._aborting.get(producer_id, (-1, False))
        if last_offset < marker_offset:
            self._aborting[producer_id] = marker_offset, True
            return Fate.ABORTED
        self._committing.add(producer_id)
        return Fate.RECORDS

    def marker(self, producer_id: int, last_offset: int, marker_type: int | None) -> Fate:
        """Judge a control batch; `marker_type` is None for one that an earlier cleaning left empty."""
        self._advance(last_offset)
        if marker_type is None:
            return Fate.SPENT_MARKER
        if marker_type == ABORT_MARKER:
            marker_offset, has_data = self._aborting.pop(producer_id, (-1, False))
            has_data = has_data and marker_offset == last_offset
            return Fate.MARKER if has_data else Fate.SPENT_MARKER
        if marker_type == COMMIT_MARKER:
            has_data = producer_id in self._committing
            self._committing.discard(producer_id)
            return Fate.MARKER if has_data else Fate.SPENT_MARKER
        # A kind of control record that this version does not know: never ours to drop.
        return Fate.MARKER

    def _advance(self, last_offset: int) -> None:
        while self._waiting and self._waiting[0].first_offset <= last_offset:
            aborted = self._waiting.popleft()
            current, _met = self._aborting.get(aborted.producer_id, (-1, False))
            if current < aborted.first_offset:
                self._aborting[aborted.producer_id] = aborted.last_offset, False
