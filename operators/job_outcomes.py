"""The outcome of a Spark job's summary, pure: of one topic by partition, of several by topic, failed ones first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logyard.admin.quantities import plural, size
from logyard.operators.outcome import Outcome

Result = Mapping[str, Any]
Cells = Callable[[Mapping[str, Any]], Sequence[Any]]

# How many failed topics a sentence names.
NAMED_MAX = 5


def audited(result: Result) -> Outcome:
    """Of AuditSegmentsOperator."""
    found = result["findings"]
    bad, warned = found["bad"], found["warn"]
    records, replicas = plural(result["records"], "record"), plural(result["replicas"], "replica")
    verdict = "no finding" if not bad + warned else f"{bad} bad, {plural(warned, 'warning')}"
    rows = [
        (f"{f['topic']}-{f['partition']}", f["replica"], f["level"], f["message"]) for f in result["first_findings"]
    ]
    return Outcome(f"{records} in {replicas}: {verdict}", ("partition", "replica", "level", "finding"), rows)


def compacted(result: Result) -> Outcome:
    """Of CompactSegmentsOperator."""
    details = result["details"]
    figures = ("outcome", "records_before", "records_after")
    rows = [
        (name, *(d[key] for key in figures), size(d["bytes_before"]), size(d["bytes_after"]), d["reason"])
        for name, d in details.items()
    ]
    looked = f"{plural(result['partitions'], 'partition')} looked at"
    columns = ("partition", "outcome", "records before", "after", "size before", "after", "why")
    if not result["compacted"] and not result["failed"]:
        reasons = sorted({str(d["reason"]) for d in details.values() if d["reason"]})
        why = f": {reasons[0]}" if len(reasons) == 1 else ""
        return Outcome(f"{looked}, none was due{why}", columns, rows)
    failed = f", {result['failed']} failed" if result["failed"] else ""
    return Outcome(
        f"{looked}, {result['compacted']} compacted{failed}: {result['records_before']:,} → "
        f"{plural(result['records_after'], 'record')}, {size(result['bytes_before'])} → {size(result['bytes_after'])}",
        columns,
        rows,
    )


def exported(result: Result) -> Outcome:
    """Of ExportSegmentsOperator."""
    rows = [(name, o["start"], o["end"], o["rows"]) for name, o in result["offsets"].items()]
    columns = ("partition", "from offset", "to", "rows")
    if not result["rows"] and not result["dead_letters"]:
        return Outcome(f"{plural(len(rows), 'partition')} looked at, nothing new to export", columns, rows)
    dead = f", {plural(result['dead_letters'], 'dead letter')}" if result["dead_letters"] else ""
    files = f"{plural(result['files'], 'file')} ({size(result['bytes'])})"
    return Outcome(f"{plural(result['rows'], 'row')} exported in {files}{dead}", columns, rows)


def maintained(result: Result) -> Outcome:
    """Of MaintainTableOperator."""
    before, after = size(result["bytes_before"]), size(result["bytes_after"])
    rows = [
        ("small files", result["files_merged"], f"{before} → {after}", result["not_rewritten"] or None),
        ("files made of them", result["files_made"], after, None),
        ("snapshots expired", result["snapshots_expired"], None, result["not_expired"] or None),
        ("snapshots left", result["snapshots_left"], None, None),
        ("files deleted", result["files_deleted"], None, None),
    ]
    rows += [("not deleted", url, None, why) for url, why in result["first_not_deleted"].items()]
    columns = ("of the table", "count", "size", "why not")
    done = []
    if result["files_merged"]:
        done.append(f"{plural(result['files_merged'], 'small file')} became {result['files_made']:,}")
    if result["snapshots_expired"]:
        done.append(f"{plural(result['snapshots_expired'], 'snapshot')} expired")
    if result["files_deleted"]:
        done.append(f"{plural(result['files_deleted'], 'file')} deleted")
    said = f"{result['table']}: {', '.join(done) or 'nothing was to be done'}"
    if result["not_deleted"]:
        said += f"; {plural(result['not_deleted'], 'file')} could not be deleted"
    return Outcome(said, columns, rows)


def of_job(result: Result) -> Outcome:
    """Of SparkSegmentsOperator, by the job that wrote the summary."""
    job = str(result.get("job"))
    if isinstance(result.get("summary"), str):
        return Outcome(f"Job {job} ended well in Spark's cluster; its summary is {result['summary']}")
    tell = {"audit": audited, "compact": compacted, "export": exported, "maintenance": maintained}.get(job)
    if tell is None:
        return Outcome(f"Job {result.get('job') or 'of Spark'} ended")
    outcome, topics = tell(result), result.get("by_topic") or {}
    if len(topics) < 2:
        return outcome
    said = f"{plural(len(topics), 'topic')}: {outcome.sentence}"
    if failed := result.get("topics_failed"):
        said += f"; {failed_topics(failed)}"
    if earlier := result.get("topics_of_earlier_tries"):
        said += f"; {plural(len(earlier), 'topic')} done in an earlier try"
    columns, cells = _BY_TOPIC[job]
    rows = [(name, *cells(row), row["failed"]) for name, row in topics.items()]
    rows.sort(key=lambda row: row[-1] is None)
    return Outcome(said, ("topic", *columns, "why it failed"), rows)


def failed_topics(failed: Mapping[str, str]) -> str:
    """`2 topics failed: a, b`."""
    names = sorted(failed)
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return f"{plural(len(names), 'topic')} failed: {', '.join(names[:NAMED_MAX])}{more}"


def _bytes(row: Mapping[str, Any], key: str) -> str | None:
    return size(row[key]) if key in row else None


_BY_TOPIC: dict[str, tuple[Sequence[str], Cells]] = {
    "audit": (
        ("verdict", "records", "replicas", "size"),
        lambda row: (row.get("verdict"), row.get("records"), row.get("replicas"), _bytes(row, "bytes")),
    ),
    "compact": (
        ("partitions", "compacted", "records before", "after", "size before", "after"),
        lambda row: (
            *(row.get(key) for key in ("partitions", "compacted", "records_before", "records_after")),
            _bytes(row, "bytes_before"),
            _bytes(row, "bytes_after"),
        ),
    ),
    "export": (("partitions", "rows"), lambda row: (row.get("partitions"), row.get("rows"))),
}
