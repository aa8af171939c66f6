"""Checks that need neighbouring segments or other replicas: one partition in one task, with numpy, from a row per batch
of each replica.

No Spark SQL: windows and joins cost more than the rest of an audit (docs/decisions/0009-audit-without-spark-sql.md).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logyard.broker.compiled.kernels import Array
from logyard.broker.errors import LogyardError
from logyard.broker.log.segment.index import AbortedTxn
from logyard.spark_jobs.audit.divergence import compare_partition, merged
from logyard.spark_jobs.audit.epochs import epoch_findings
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.framing import OPEN_END, Blind, BlindOffsets
from logyard.spark_jobs.audit.replica_state import checkpoint_findings
from logyard.spark_jobs.audit.segment import BATCH_SCHEMA, SegmentAudit, SegmentAuditor
from logyard.spark_jobs.audit.transactions import transaction_findings
from logyard.spark_jobs.segments.replicas import Replica

CONTROL = 0x20
SEQUENCES = 2**31
NAMED_MAX = 100

Columns = Mapping[str, Array]


@dataclass(slots=True)
class PartitionVerdict:
    """The findings on one partition, and a row of totals per replica."""

    findings: list[Finding] = field(default_factory=list)
    totals: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """What a task returns for one segment: its batches as an Arrow stream, and its findings."""

    replica: int
    batches: bytes
    findings: tuple[Finding, ...]
    aborted: tuple[int, tuple[AbortedTxn, ...]] | None = None  # the segment's base, and its transaction index
    blind: tuple[Blind, ...] = ()
    base: int = 0


def audit_bin(work: Iterable[SegmentAudit]) -> Iterator[tuple[str, SegmentRows]]:
    """Audit segments, inside a task; yields (partition, rows) for the shuffle."""
    for item in work:
        auditor = SegmentAuditor(item)
        table = auditor.run()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        aborted = None if auditor.aborted is None else (item.segment.base_offset, auditor.aborted)
        rows = SegmentRows(
            item.segment.replica,
            sink.getvalue().to_pybytes(),
            tuple(auditor.findings),
            aborted,
            auditor.blind,
            item.segment.base_offset,
        )
        yield f"{item.segment.topic}-{item.segment.partition}", rows


def judge_rows(replicas: Sequence[Replica], rows: Iterable[SegmentRows]) -> PartitionVerdict:
    """Judge one partition from what the tasks of its segments returned; runs in a task."""
    tables: dict[int, list[pa.Table]] = defaultdict(list)
    aborted: dict[int, dict[int, tuple[AbortedTxn, ...]]] = defaultdict(dict)
    findings: list[Finding] = []
    blind: dict[int, list[Blind]] = defaultdict(list)
    following = {r.broker_id: _following(r) for r in replicas}
    for part in rows:
        end = following.get(part.replica, {}).get(part.base, OPEN_END)
        blind[part.replica] += [Blind(b.first, min(b.last, end)) for b in part.blind]
        tables[part.replica].append(pa.ipc.open_stream(part.batches).read_all())
        findings += part.findings
        if part.aborted is not None:
            aborted[part.replica][part.aborted[0]] = part.aborted[1]
    verdict = judge_partition(replicas, tables, aborted, blind)
    verdict.findings = [*_cut_each(findings), *verdict.findings]
    return verdict


def _cut_each(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Cut the findings of a partition's segments, for each replica and check: where a producer's clock runs ahead, each
    of its batches is one, and the driver gets those of all partitions."""
    by_kind: dict[tuple[int, str, str], list[Finding]] = defaultdict(list)
    for one in findings:
        by_kind[one.replica, one.level, one.check].append(one)
    for some in by_kind.values():
        yield from _cut(iter(some))


def _following(replica: Replica) -> dict[int, int]:
    """Return, by base offset, the last offset that a segment can have before its successor begins."""
    bases = [segment.base_offset for segment in replica.segments]
    return {base: following - 1 for base, following in pairwise(bases)}


def judge_partition(
    replicas: Sequence[Replica],
    tables: Mapping[int, Sequence[pa.Table]],
    aborted: Mapping[int, Mapping[int, Sequence[AbortedTxn]]] | None = None,
    blind: Mapping[int, Sequence[Blind]] | None = None,
) -> PartitionVerdict:
    """Judge all replicas of one partition.

    :param tables: the batches (BATCH_SCHEMA) of each broker's segments, in any order.
    :param aborted: each broker's transaction indexes, by the base offset of closed segments.
    :param blind: offsets of each broker's log that only damaged bytes tell; the damage is a finding already.
    """
    rows = {r.broker_id: _columns(tables.get(r.broker_id, ())) for r in replicas}
    verdict = PartitionVerdict()
    blind = blind or {}
    damaged = {r.broker_id: BlindOffsets(blind.get(r.broker_id, ())) for r in replicas}
    for replica in replicas:
        end = _end(replica, rows[replica.broker_id])
        verdict.findings += checkpoint_findings(replica, end, damaged[replica.broker_id])
    # A replica that was fetched from a cleaned one has no checkpoint of its own, so the highest one counts for all.
    cleaned_to = max((r.clean_offset for r in replicas), default=-1)
    replicas = [replace(r, clean_offset=cleaned_to) for r in replicas]
    for replica in replicas:
        columns, spans = rows[replica.broker_id], blind.get(replica.broker_id, ())
        verdict.findings += _cut(order_findings(replica, columns, damaged[replica.broker_id]))
        unknown = BlindOffsets([*spans, *(Blind(first, last) for _, first, last in gaps(replica, columns))])
        verdict.findings += _cut(sequence_findings(replica, columns, unknown))
        verdict.findings += _cut(epoch_findings(replica, columns, unknown))
        if aborted is not None:
            indexes = aborted.get(replica.broker_id, {})
            verdict.findings += _cut(transaction_findings(replica, columns, indexes, unknown))
        verdict.totals.append(_totals(replica, columns))
    if len(replicas) > 1:
        damaged_somewhere = BlindOffsets(b for spans in blind.values() for b in spans)
        verdict.findings += replica_findings(replicas, rows, damaged_somewhere)
    return verdict


def _end(replica: Replica, c: Columns) -> int:
    """Return the offset after a log's last batch."""
    last = int(c["last"].max()) if len(c["last"]) else -1
    return max(last + 1, replica.segments[-1].base_offset if replica.segments else 0)


def _columns(tables: Sequence[pa.Table]) -> Columns:
    table = pa.concat_tables(tables) if tables else BATCH_SCHEMA.empty_table()
    # Not by `to_numpy`, which imports pandas where it is installed: that takes longer than the judging.
    # Of segments without a batch a table has no chunk: `combine_chunks` makes an empty array of them.
    columns = {name: np.from_dlpack(table.column(name).combine_chunks()) for name in table.column_names}
    order = np.lexsort((columns["position"], columns["segment"]))
    return {name: column[order] for name, column in columns.items()}


def order_findings(replica: Replica, c: Columns, unknown: BlindOffsets) -> Iterator[Finding]:
    """Find repeated offsets, gaps that cleaning does not explain, decreasing leader epochs, and files that end at
    another offset than the log."""
    base, last, epoch = c["base"], c["last"], c["epoch"].astype(np.int64)
    if not len(base):
        return
    before = _before(replica, c)
    later = np.arange(len(base)) > 0
    for row in np.flatnonzero(later & (base <= before)).tolist():
        yield _finding(replica, c, row, BAD, "offsets", f"offset {base[row]} follows offset {before[row]}")
    cleaned_to = max(replica.clean_offset, replica.log_start_offset)
    for row, first, end in gaps(replica, c):
        if not unknown.covers(max(first, cleaned_to), end):
            yield _gap(replica, c, row, first)
    # Messages before v2 carry none.
    rows = np.flatnonzero(epoch >= 0)
    for at in (np.flatnonzero(np.diff(epoch[rows]) < 0) + 1).tolist():
        row, earlier = int(rows[at]), int(rows[at - 1])
        yield _finding(replica, c, row, BAD, "epochs", f"leader epoch {epoch[row]} follows {epoch[earlier]}")
    is_known = not unknown.meets(int(last[-1]) + 1, OPEN_END)
    if 0 <= replica.log_end_offset != last[-1] + 1 and is_known:
        text = f"the files end at offset {last[-1]}, the log at {replica.log_end_offset - 1}"
        yield _finding(replica, c, len(base) - 1, BAD, "end", text)


def _before(replica: Replica, c: Columns) -> Array:
    """Return, for each batch, the last offset before it."""
    return np.concatenate([[replica.log_start_offset - 1], c["last"][:-1]])


def gaps(replica: Replica, c: Columns) -> Iterator[tuple[int, int, int]]:
    """Yield (row of the batch, first and last missing offset before it) for each gap that nothing explains."""
    if not len(c["base"]):
        return
    base, before = c["base"], _before(replica, c)
    # Cleaning leaves gaps below the cleaner's checkpoint, DeleteRecords one at the log's start.
    explained = max(replica.clean_offset, replica.log_start_offset)
    # No checksum covers an offset: one byte makes it so large that there is none after it.
    for row in np.flatnonzero((base > before) & (base - 1 > before) & (base > explained)).tolist():
        yield row, int(before[row]) + 1, int(base[row]) - 1


def _gap(replica: Replica, c: Columns, row: int, first: int) -> Finding:
    """Report a gap before a batch; where the batch begins a segment, the previous segment may have lost its tail."""
    text = f"offsets {first} to {c['base'][row] - 1} are missing, and nothing cleaned there"
    if replica.clean_offset <= 0 and "compact" in (replica.policy or ""):
        # If every replica was fetched again after a cleaning, no checkpoint shows that cleaning any more.
        return _finding(replica, c, row, WARN, "gap", f"{text} as far as its replicas know")
    if not row or c["segment"][row] == c["segment"][row - 1]:
        return _finding(replica, c, row, BAD, "gap", text)
    file = f"{replica.directory}/{int(c['segment'][row - 1]):020d}.log"
    position = int(c["position"][row - 1] + c["length"][row - 1])
    text += f": this segment lost its tail, or segment {int(c['segment'][row])} its front"
    return Finding(BAD, "gap", *replica.tp, replica.broker_id, file, position, first, text)


def sequence_findings(replica: Replica, c: Columns, unknown: BlindOffsets) -> Iterator[Finding]:
    """Find gaps in a producer's sequence numbers, above what has been cleaned."""
    data = (c["producer_id"] >= 0) & (c["sequence"] >= 0) & (c["attributes"] & CONTROL == 0)
    rows = np.flatnonzero(data & (c["base"] >= replica.clean_offset))
    rows = rows[np.lexsort((c["base"][rows], c["producer_epoch"][rows], c["producer_id"][rows]))]
    if len(rows) < 2:
        return
    producer, epoch = c["producer_id"][rows], c["producer_epoch"][rows]
    sequence = c["sequence"][rows].astype(np.int64)
    expected = (sequence + c["last"][rows] - c["base"][rows] + 1)[:-1] % SEQUENCES
    same = (producer[1:] == producer[:-1]) & (epoch[1:] == epoch[:-1])
    for at in np.flatnonzero(same & (expected != sequence[1:])).tolist():
        between = int(c["last"][rows[at]]), int(c["base"][rows[at + 1]])
        if unknown.meets(*between):
            continue
        text = f"producer {producer[at]} continues with sequence {sequence[at + 1]}, {expected[at]} is expected"
        yield _finding(replica, c, int(rows[at + 1]), WARN, "sequence", text)


def replica_findings(replicas: Sequence[Replica], rows: Mapping[int, Columns], unknown: BlindOffsets) -> list[Finding]:
    """Compare replicas below what all of them hold: by batch, and by record if one of them was cleaned.

    :param unknown: offsets that are damaged on one of them; the damage is a finding already.
    """
    start = max(r.log_start_offset for r in replicas)
    end = min((r.high_watermark for r in replicas if r.high_watermark >= 0), default=2**62)
    cleaned_to = max(r.clean_offset for r in replicas)
    findings, spans = [], []
    for base, last, holders, text in unlike_batches(replicas, rows, start, end):
        if unknown.meets(base, last):
            continue
        if base < cleaned_to:
            spans.append((base, last))
        else:
            named = f"batch {base} to {last} is not the same on all replicas: {text} (held by {_names(holders)})"
            owner = next(r for r in replicas if r.broker_id == holders[0])
            findings.append(_plain(owner, BAD, "replicas", base, named))
    findings = _cut(iter(findings))
    if spans:
        try:
            findings += compare_partition(replicas, merged(spans), end)
        except (LogyardError, OSError) as error:
            # A replica became unreachable: the other findings on the partition still hold.
            findings.append(_plain(replicas[0], WARN, "replicas", start, f"its records were not compared: {error}"))
    return findings


def unlike_batches(
    replicas: Sequence[Replica], rows: Mapping[int, Columns], start: int, end: int
) -> Iterator[tuple[int, int, list[int], str]]:
    """Yield (first offset, last offset, holders, difference) of each batch in [start, end) that is not the same on
    every replica. Batches without records are not compared: each replica may keep different ones."""
    parts = []
    for replica in replicas:
        c = rows[replica.broker_id]
        mask = (c["records"] > 0) & (c["base"] >= start) & (c["last"] < end)
        names = ("base", "last", "crc", "length", "epoch")
        parts.append([np.full(int(mask.sum()), replica.broker_id), *(c[n][mask].astype(np.int64) for n in names)])
    broker, base, last, crc, length, epoch = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(base):
        return
    order = np.lexsort((broker, last, base))
    broker, base, last, crc, length, epoch = (x[order] for x in (broker, base, last, crc, length, epoch))
    first = np.concatenate([[True], (np.diff(base) != 0) | (np.diff(last) != 0)])
    group = np.flatnonzero(first)
    sizes = np.diff(np.append(group, len(base)))
    differs = {
        "checksums differ": _varies(crc, group) | _varies(length, group),
        "leader epochs differ": _varies(epoch, group),
        "others lack it": sizes != len(replicas),
    }
    for number in np.flatnonzero(np.logical_or.reduce(list(differs.values()))).tolist():
        at = int(group[number])
        text = next(words for words, mask in differs.items() if mask[number])
        yield int(base[at]), int(last[at]), broker[at : at + int(sizes[number])].tolist(), text


def _varies(values: Array, group: Array) -> Array:
    return np.minimum.reduceat(values, group) != np.maximum.reduceat(values, group)


def _totals(replica: Replica, c: Columns) -> dict[str, Any]:
    count = len(c["base"])
    return {
        "topic": replica.topic,
        "partition": replica.partition,
        "replica": replica.broker_id,
        "segments": len(replica.segments),
        "batches": count,
        "records": int(c["records"].sum()),
        "bytes": int(c["length"].sum()),
        "first_offset": int(c["base"][0]) if count else -1,
        "last_offset": int(c["last"][-1]) if count else -1,
        "high_watermark": replica.high_watermark,
        "clean_offset": replica.clean_offset,
        # Bytes that were not cleaned yet; -1 if the log is not compacted.
        "dirty_bytes": int(c["length"][c["last"] >= replica.clean_offset].sum()) if replica.compacted else -1,
        # The wrapping sum of all records' digests: equal on replicas that hold the same records.
        "digest": f"{int(c['content'].astype(np.uint64).sum()):016x}",
    }


def _finding(replica: Replica, c: Columns, row: int, level: str, check: str, text: str) -> Finding:
    file = f"{replica.directory}/{int(c['segment'][row]):020d}.log"
    place = (file, int(c["position"][row]), int(c["base"][row]))
    return Finding(level, check, replica.topic, replica.partition, replica.broker_id, *place, text)


def _plain(replica: Replica, level: str, check: str, offset: int, text: str) -> Finding:
    return Finding(level, check, *replica.tp, replica.broker_id, replica.directory, -1, offset, text)


def _names(brokers: Sequence[int]) -> str:
    return ", ".join(str(b) for b in brokers)


def _cut(findings: Iterator[Finding]) -> list[Finding]:
    """Keep the first NAMED_MAX findings, and one that counts the rest."""
    every = list(findings)
    if len(every) <= NAMED_MAX:
        return every
    worst = next((f for f in every if f.level == BAD), every[0])
    rest = f"and {len(every) - NAMED_MAX} more of this kind"
    more = Finding(worst.level, worst.check, worst.topic, worst.partition, worst.replica, worst.file, -1, -1, rest)
    return [*every[:NAMED_MAX], more]
