"""Aborted transactions and the last stable offset, checked against the markers in the log.

Reads depend on these files: a wrong one hides or shows the wrong records, although every batch of the log is sound.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from logyard.broker.compaction.decision import TRANSACTIONAL
from logyard.broker.compaction.transactions import ABORT_MARKER
from logyard.broker.compiled.kernels import Array
from logyard.broker.log import layout
from logyard.broker.log.segment.index import AbortedTxn
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.framing import NONE_BLIND, BlindOffsets
from logyard.spark_jobs.audit.segment import NO_MARKER
from logyard.spark_jobs.segments.replicas import Replica

Columns = Mapping[str, Array]


def transaction_findings(
    replica: Replica, c: Columns, indexes: Mapping[int, Sequence[AbortedTxn]], unknown: BlindOffsets = NONE_BLIND
) -> Iterator[Finding]:
    """Find transaction indexes that contradict the markers in their segments.

    A transaction that reaches into `unknown` offsets is not judged by what is missing there. If cleaning or retention
    removed batches, only the rest is compared.
    """
    is_whole = replica.log_start_offset == 0 and replica.clean_offset <= 0
    expected, begun = aborted_by_markers(c)
    for base, entries in indexes.items():
        listed = {entry.last_offset: entry for entry in entries}
        for last, found in expected.get(base, {}).items():
            entry = listed.pop(last, None)
            if found.first_offset < 0:
                continue  # its records were removed, or it had none
            is_seen = is_whole and not unknown.meets(0, last)
            if entry is None:
                yield _finding(replica, base, last, BAD, f"the transaction aborted at {last} is not listed")
            elif entry.producer_id != found.producer_id:
                text = f"the transaction aborted at {last} is producer {found.producer_id}'s, not {entry.producer_id}'s"
                yield _finding(replica, base, last, BAD, text)
            elif is_seen and entry.first_offset != found.first_offset:
                text = f"the transaction aborted at {last} began at {found.first_offset}, not {entry.first_offset}"
                yield _finding(replica, base, last, BAD, text)
            elif is_seen and not _is_stable(entry.last_stable_offset, found, begun):
                text = f"the last stable offset was {found.last_stable_offset} after {last}, not"
                yield _finding(replica, base, last, WARN, f"{text} {entry.last_stable_offset}")
        for last in listed:
            if last >= max(replica.clean_offset, replica.log_start_offset) and not unknown.meets(last, last):
                yield _finding(replica, base, last, BAD, f"no transaction was aborted at {last}")


def _is_stable(said: int, found: AbortedTxn, begun: frozenset[int]) -> bool:
    """Whether the last stable offset in an index entry is possible.

    If no transaction was open after the marker, a follower may write the first offset of the next transaction in the
    same fetch.
    """
    if found.last_stable_offset <= found.last_offset:
        return said == found.last_stable_offset
    return said == found.last_stable_offset or (said > found.last_offset and said in begun)


def aborted_by_markers(c: Columns) -> tuple[dict[int, dict[int, AbortedTxn]], frozenset[int]]:
    """Return the aborted transactions by their marker's segment and offset (`first_offset` is -1 if none of its batches
    is left), and the first offsets of all transactions."""
    rows = np.flatnonzero(c["attributes"] & TRANSACTIONAL)
    names = ("segment", "base", "last", "producer_id", "marker")
    columns = (c[name][rows].tolist() for name in names)
    open_from: dict[int, int] = {}
    # The open transactions and some that ended, by where they began: a log may have very many open at once.
    begins: list[tuple[int, int]] = []
    found: dict[int, dict[int, AbortedTxn]] = defaultdict(dict)
    begun: set[int] = set()
    for segment, base, last, producer, marker in zip(*columns, strict=True):
        if marker == NO_MARKER:
            if producer not in open_from:
                open_from[producer] = base
                heapq.heappush(begins, (base, producer))
                begun.add(base)
            continue
        first = open_from.pop(producer, -1)
        if marker == ABORT_MARKER:
            while begins and open_from.get(begins[0][1]) != begins[0][0]:
                heapq.heappop(begins)
            stable = begins[0][0] if begins else last + 1
            found[segment][last] = AbortedTxn(producer, first, last, stable)
    return dict(found), frozenset(begun)


def _finding(replica: Replica, base: int, offset: int, level: str, text: str) -> Finding:
    file = f"{replica.directory}/{base:020d}{layout.TXN_INDEX}"
    return Finding(level, "txnindex", *replica.tp, replica.broker_id, file, -1, offset, text)
