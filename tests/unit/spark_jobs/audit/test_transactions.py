"""What the look at transaction indexes finds, and what it costs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logyard.broker.compaction.decision import TRANSACTIONAL
from logyard.broker.compaction.transactions import ABORT_MARKER
from logyard.broker.log.segment.index import AbortedTxn
from logyard.spark_jobs.audit import transactions
from logyard.spark_jobs.audit.segment import NO_MARKER
from logyard.spark_jobs.audit.transactions import transaction_findings
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition
from tests.support.steps import Counted, lines_run

Indexes = Mapping[int, Sequence[AbortedTxn]]


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return of_partition_directory(str(write_partition(tmp_path, "t-0", [[batch([Rec(0, b"k", b"v")])]])), 1)


def test_overlapping_transactions_are_listed_with_their_last_stable_offset(replica: Replica) -> None:
    """Producers 1, 2 and 3 begin at 0, 1 and 2; 2, 1 and 3 abort at 3, 4 and 5: the log is stable up to 0, 2 and 6."""
    rows = [(0, 1, NO_MARKER), (1, 2, NO_MARKER), (2, 3, NO_MARKER)]
    rows += [(3, 2, ABORT_MARKER), (4, 1, ABORT_MARKER), (5, 3, ABORT_MARKER)]
    columns = _columns([(0, *row) for row in rows])
    right = [AbortedTxn(2, 1, 3, 0), AbortedTxn(1, 0, 4, 2), AbortedTxn(3, 2, 5, 6)]
    assert list(transaction_findings(replica, columns, {0: right})) == []
    wrong = [right[0]._replace(last_stable_offset=1), right[1]._replace(producer_id=7), AbortedTxn(9, 4, 8, 9)]
    assert [(f.offset, f.message) for f in transaction_findings(replica, columns, {0: wrong})] == [
        (3, "the last stable offset was 0 after 3, not 1"),
        (4, "the transaction aborted at 4 is producer 1's, not 7's"),
        (5, "the transaction aborted at 5 is not listed"),
        (8, "no transaction was aborted at 8"),
    ]


def test_a_listed_transaction_whose_marker_is_in_another_segment_is_wrong(replica: Replica) -> None:
    columns = _columns([(0, 0, 1, NO_MARKER), (1, 1, 1, ABORT_MARKER)])
    found = transaction_findings(replica, columns, {0: [AbortedTxn(1, 0, 1, 2)], 1: []})
    assert [f.message for f in found] == [
        "no transaction was aborted at 1",
        "the transaction aborted at 1 is not listed",
    ]


def test_ten_times_as_many_segments_and_transactions_cost_ten_times_as_much(replica: Replica) -> None:
    few, many = (_steps(replica, *_log(segments, 1)) for segments in (20, 200))
    assert many < 11 * few


def test_transactions_that_are_open_at_once_are_not_compared_with_each_other(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, indexes = _log(1, 2000)
    columns["base"] = np.array([Counted(base) for base in columns["base"].tolist()], object)
    monkeypatch.setattr(Counted, "uses", 0)
    assert list(transaction_findings(replica, columns, indexes)) == []
    assert Counted.uses < 40 * 2000


def _log(segments: int, open_at_once: int) -> tuple[dict[str, Any], Indexes]:
    """Return segments of `open_at_once` transactions each, which all begin before the first of them is aborted."""
    rows, indexes = [], {}
    for segment in range(segments):
        base = 2 * open_at_once * segment
        rows += [(base, base + number, number, NO_MARKER) for number in range(open_at_once)]
        ends = range(base + open_at_once, base + 2 * open_at_once)
        rows += [(base, end, number, ABORT_MARKER) for number, end in enumerate(ends)]
        stable = [*range(base + 1, base + open_at_once), base + 2 * open_at_once]
        indexes[base] = [AbortedTxn(n, base + n, end, stable[n]) for n, end in enumerate(ends)]
    return _columns(rows), indexes


def _columns(rows: Sequence[tuple[int, int, int, int]]) -> dict[str, Any]:
    segment, base, producer, marker = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    attributes = np.full(len(rows), TRANSACTIONAL, np.int32)
    return {
        "segment": segment,
        "base": base,
        "last": base,
        "producer_id": producer,
        "marker": marker,
        "attributes": attributes,
    }


def _steps(replica: Replica, columns: dict[str, Any], indexes: Indexes) -> int:
    def look() -> None:
        assert list(transaction_findings(replica, columns, indexes)) == []

    return lines_run(transactions, look)
