"""Which transactional batches a compaction removes, and when a marker is no longer needed.

Rule 1: data of an aborted transaction is removed at once and never supersedes anything.
Rule 2: a marker may be removed once no batch of its transaction is left before it (an empty batch still counts).
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
    """One entry of a transaction index: producer, first and last offset (the abort marker's), and the last stable
    offset after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int = -1


class Fate(Enum):
    """The decision about a whole batch, before its keys are compared."""

    RECORDS = "each record is decided by its key"
    ABORTED = "every record is removed"
    MARKER = "a marker with batches of its transaction before it: stays"
    SPENT_MARKER = "a marker whose transaction is gone: removed once its horizon has passed"


class TransactionFilter:
    """Reads a log's batches in offset order and decides about each transactional or control batch."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda t: (t.first_offset, t.last_offset)))
        # producer id -> offset of the abort marker, and whether a batch of the transaction has been seen. The marker
        # itself may be gone while the index still lists it: batches after its offset are another transaction's.
        self._aborting: dict[int, tuple[int, bool]] = {}
        self._committing: set[int] = set()

    def data(self, producer_id: int, last_offset: int) -> Fate:
        """Decide about a transactional data batch."""
        self._advance(last_offset)
        marker_offset, _met = self._aborting.get(producer_id, (-1, False))
        if last_offset < marker_offset:
            self._aborting[producer_id] = marker_offset, True
            return Fate.ABORTED
        self._committing.add(producer_id)
        return Fate.RECORDS

    def marker(self, producer_id: int, last_offset: int, marker_type: int | None) -> Fate:
        """Decide about a control batch; `marker_type` is None if an earlier compaction left it empty."""
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
        # A kind of control record that this version does not know: it is never removed.
        return Fate.MARKER

    def _advance(self, last_offset: int) -> None:
        while self._waiting and self._waiting[0].first_offset <= last_offset:
            aborted = self._waiting.popleft()
            current, _met = self._aborting.get(aborted.producer_id, (-1, False))
            if current < aborted.first_offset:
                self._aborting[aborted.producer_id] = aborted.last_offset, False
