"""Audit every replica of topics (or of directories): checksums, records, offsets, indexes, epochs, and whether
replicas agree.

    spark-submit spark_jobs/audit.py --cluster-file DIR/cluster.json --topic flights --report audit/
    spark-submit spark_jobs/audit.py --log-dir 1=/data/1 --log-dir 2=/data/2 --topic flights

Each topic has leases, a failure and a part of the summary of its own; a few are worked on at once, in one Spark
application.

The last line printed is the summary as JSON. Exit status: 0 if there are no findings or only warnings, 2 if a finding
is bad, 1 if the audit, or that of a topic, could not be done, or its report not be written: then the summary's `error`
says why, and the log has the findings.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs import session
from logyard.spark_jobs.audit import quarantine, report
from logyard.spark_jobs.audit.findings import BAD, OK, WARN, Finding
from logyard.spark_jobs.audit.partition import PartitionVerdict, SegmentRows, audit_bin, judge_rows
from logyard.spark_jobs.audit.replica_state import damaged_files, standing_findings, stray_findings
from logyard.spark_jobs.audit.segment import SegmentAudit
from logyard.spark_jobs.command import FAILED, line_of, run_job, say
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.leases.client import Lease, end_run, partitions_status
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.progress import Progress, over_tasks
from logyard.spark_jobs.segments.replicas import Replica, check_topics, of_leased, of_log_directory
from logyard.spark_jobs.turns import Turns, add_option, take_turns

FINDINGS_IN_SUMMARY = 50
# How many are told in the log, if the report cannot have them.
FINDINGS_IN_LOG = 1000
# A directory is a stray if it is one at both of two looks: a replica's may come or go while a broker lists them.
STRAYS_AGAIN_S = 2.0
# A tenth of a second's work.
SMALL_BYTES = 64 * 1024 * 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Run the audit; returns the exit status."""
    parser = argparse.ArgumentParser(prog="audit.py", description=__doc__.split("\n")[0] if __doc__ else None)
    clusters.add_arguments(parser)
    add_option(parser)
    parser.add_argument(
        "--log-dir",
        action="append",
        default=[],
        metavar="[ID=]PATH",
        help="audit a directory of broker ID (by default its position) instead of a cluster; repeatable",
    )
    parser.add_argument("--cleanup-policy", metavar="POLICY", help="with --log-dir: the topics' cleanup.policy")
    parser.add_argument("--shallow", action="store_true", help="check headers and checksums only, not records")
    parser.add_argument(
        "--quarantine",
        action="store_true",
        help="have brokers move damaged followers' files aside, keep them, and fetch the log from the leader",
    )
    parser.add_argument(
        "--re-replicate",
        type=float,
        metavar="S",
        help="like --quarantine, and wait up to S seconds until those replicas are in sync again",
    )
    parser.add_argument("--report", metavar="DIR", help="write index.html, findings.parquet and replicas.parquet there")
    return run_job(parser, argv, audit)


@dataclass(slots=True)
class Audited:
    """What an audit found in some replicas; `totals` has a row per replica."""

    replicas: list[Replica] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    totals: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: "Audited") -> None:
        self.replicas += other.replicas
        self.findings += other.findings
        self.totals += other.totals


def audit(arguments: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Do the audit; returns the exit status and the summary."""
    began = time.monotonic()
    session.need_rdds("audit")
    wants_quarantine = arguments.quarantine or arguments.re_replicate is not None
    if wants_quarantine and arguments.log_dir:
        raise JobFailed("--quarantine needs brokers: it cannot be combined with --log-dir")
    if arguments.report:
        report.check(arguments.report)
    spark = session.SparkStart("logyard audit")
    more: dict[str, Any] = {}
    if arguments.log_dir:
        whole = _directories(arguments, spark)
    else:
        whole, turns = _topics(arguments, spark)
        more = {"by_topic": turns.rows(_row), "topics_failed": turns.failed}
    summary = _summary(whole, time.monotonic() - began) | more
    if wants_quarantine:
        summary["quarantined"] = _quarantine(whole.replicas, whole.findings, arguments.re_replicate)
    if arguments.report:
        summary |= _report(arguments.report, summary, whole)
    failed = more.get("topics_failed") or "error" in summary
    return 2 if summary["verdict"] == BAD else FAILED if failed else 0, summary


def _report(directory: str, summary: dict[str, Any], whole: Audited) -> dict[str, Any]:
    """Write the report; if that fails, the audit is told all the same: returns `error` then, for the summary."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        report.write(directory, summary, whole.findings, whole.totals, now)
    except Exception as error:
        why = " ".join((line_of(error) or f"{type(error).__name__}: {error}").split())
        say(f"audit: the report could not be written to {directory}: {why}")
        for found in _worst_first(whole.findings)[:FINDINGS_IN_LOG]:
            say(f"audit: {json.dumps(found.to_json(), sort_keys=True)}")
        return {"error": f"the report could not be written: {why}"}
    return {}


def _directories(arguments: argparse.Namespace, spark: session.SparkStart) -> Audited:
    replicas = of_directories(arguments)
    whole = Audited(replicas, [found for replica in replicas for found in damaged_files(replica)])
    _inspect(spark.context(), whole, deep=not arguments.shallow)
    return whole


def _topics(arguments: argparse.Namespace, spark: session.SparkStart) -> tuple[Audited, Turns[Audited]]:
    """Audit the topics of a cluster: those that are named, or all but Kafka's own."""
    if arguments.topic:
        # An audit reads whatever it can lease, so Spark starts beside the look at the brokers and the first leases.
        spark.begin()
    cluster = clusters.RecentCluster(arguments)
    whole = Audited()
    topics = arguments.topic
    if not topics:
        seen = cluster.look()
        seen.learn_all()
        topics = sorted(set(seen.metadata.topics) - seen.metadata.internal)
        whole.findings += of_all_topics(seen)
    if topics:
        spark.begin()

    def work(topic: str) -> tuple[Audited, str]:
        return _audit_topic(topic, arguments, cluster.look(), spark), ""

    turns = take_turns("audit", topics, work, arguments.topics_at_once)
    for part in turns.parts:
        whole.add(part)
    if not whole.replicas and not whole.findings and not turns.failed:
        raise JobFailed("there is no topic to audit")
    return whole, turns


def _audit_topic(
    topic: str, arguments: argparse.Namespace, cluster: clusters.Cluster, spark: session.SparkStart
) -> Audited:
    """Audit one topic, under leases that are taken here and end here."""
    with ExitStack() as stack:
        leases: list[Lease] = []
        beats = stack.enter_context(Heartbeats(leases, arguments.lease_ttl_s * 1000))
        stack.callback(end_run, leases, "the audit is over")
        part = leased(topic, cluster, leases)
        say(f"audit: {topic}: {len(part.replicas)} replicas, {_bytes(part.replicas):,} bytes")
        if part.replicas:
            _inspect(spark.context(), part, deep=not arguments.shallow)
        beats.beat()
        part.findings = without_lost(part.findings, part.replicas, beats.lost)
        return part


def leased(topic: str, cluster: clusters.Cluster, leases: list[Lease]) -> Audited:
    """Lease every replica of a topic before anything is read.

    A replica that cannot be leased is a warning; a partition of which none can be leased is a bad finding.
    """
    run_id = clusters.run_id("audit")
    part = Audited()
    for tp, place in cluster.partitions([topic]):
        held = []
        # The leader last: it must have every record that a follower knew to be acknowledged before.
        for broker_id in sorted(place.replicas, key=place.leader.__eq__):
            try:
                leases.append(cluster.lease(broker_id, tp, run_id, "audit"))
                held.append(of_leased(leases[-1]))
            except LeaseError as error:
                part.findings.append(Finding(WARN, "replica", *tp, broker_id, "", -1, -1, f"not audited: {error}"))
        if not held:
            part.findings.append(Finding(BAD, "replica", *tp, -1, "", -1, -1, "no replica could be audited"))
        part.replicas += held
        if held:
            part.findings += standing_findings(held)
    return part


def of_all_topics(cluster: clusters.Cluster) -> list[Finding]:
    """Return the findings of a whole cluster that belong to no topic: topics without metadata, stray directories."""
    said = "not audited: the brokers returned no metadata for this topic"
    findings = [Finding(WARN, "replica", name, -1, -1, "", -1, -1, said) for name in cluster.metadata.missing]
    suspected: dict[int, set[str]] = {}
    for broker in cluster.brokers.values():
        try:
            suspected[broker.broker_id] = set(partitions_status(broker)["strays"])
        except LeaseError as error:
            findings.append(_not_looked_at(broker.broker_id, error))
    if any(suspected.values()):
        time.sleep(STRAYS_AGAIN_S)
    for broker_id, seen in suspected.items():
        try:
            again = partitions_status(cluster.brokers[broker_id])["strays"] if seen else ()
            findings += stray_findings(broker_id, sorted(seen.intersection(again)))
        except LeaseError as error:
            findings.append(_not_looked_at(broker_id, error))
    return findings


def _not_looked_at(broker_id: int, error: LeaseError) -> Finding:
    text = f"its directories were not looked at: {error}"
    return Finding(WARN, "stray", "", -1, broker_id, "", -1, -1, text)


def _bytes(replicas: Sequence[Replica]) -> int:
    return sum(segment.size for replica in replicas for segment in replica.segments)


def of_directories(arguments: argparse.Namespace) -> list[Replica]:
    """Return the replicas of `--log-dir`; raises JobFailed if two are one replica of a partition."""
    replicas = []
    for broker_id, path in numbered(arguments.log_dir):
        if not os.path.isdir(path):
            raise JobFailed(f"--log-dir {path}: there is no such directory")
        replicas += list(of_log_directory(path, broker_id, arguments.topic, arguments.cleanup_policy))
    check_topics("--log-dir", replicas, arguments.topic)
    seen: dict[tuple[int, TopicPartition], Replica] = {}
    for replica in replicas:
        other = seen.setdefault((replica.broker_id, replica.tp), replica)
        if other is not replica:
            raise JobFailed(
                f"--log-dir: {other.directory} and {replica.directory} are both replica {replica.broker_id} of"
                f" {replica.tp}: give one of them another ID (--log-dir ID=PATH)"
            )
    return replicas


def numbered(given: Sequence[str]) -> list[tuple[int, str]]:
    """Return the id and path of each `[ID=]PATH`: one without an id has its position, or the next number that is free.
    Several directories may have one id, as a broker may have several."""
    parts = [one.partition("=") for one in given]
    ids = [int(head) if tail and head.isascii() and head.isdigit() else None for head, _, tail in parts]
    taken = set(ids)
    found = []
    for position, (one, (_, _, tail), number) in enumerate(zip(given, parts, ids, strict=True)):
        if number is not None:
            found.append((number, tail))
            continue
        free = next(n for n in range(position, position + len(taken) + 1) if n not in taken)
        taken.add(free)
        found.append((free, one))
    return found


def _inspect(context: Any, part: Audited, *, deep: bool) -> None:
    """Check every segment, then each partition as a whole; adds the findings and totals.

    Where partitions are even enough to be tasks, each is judged in the task that read it: no shuffle follows.
    """
    work: dict[str, list[SegmentAudit]] = defaultdict(list)
    by_partition: dict[str, list[Replica]] = defaultdict(list)
    for r in part.replicas:
        name = str(r.tp)
        by_partition[name].append(r)
        for segment in r.segments:
            work[name].append(SegmentAudit(segment, deep, r.leader_epochs, r.compacted, r.now_ms, r.log_start_offset))
    sizes = {name: sum(s.size for r in held for s in r.segments) for name, held in by_partition.items()}
    tell = over_tasks(context, Progress("audit", sizes, say))

    def inspect(items: list[SegmentAudit]) -> Iterator[tuple[str, SegmentRows]]:
        for item in items:
            yield from audit_bin([item])
            tell(f"{item.segment.topic}-{item.segment.partition}", item.segment.size)

    def inspect_whole(partitions: list[tuple[list[Replica], list[SegmentAudit]]]) -> list[PartitionVerdict]:
        return [judge_rows(replicas, (rows for _, rows in inspect(items))) for replicas, items in partitions]

    tasks = session.task_count(context)
    if are_tasks([sizes[name] for name in work], int(context.defaultParallelism)):
        pairs = [(by_partition[name], items) for name, items in work.items()]
        whole = session.bins_by_size(pairs, lambda pair: sum(item.segment.size for item in pair[1]), tasks)
        verdicts = [verdict for answer in session.run_each(context, whole, inspect_whole) for verdict in answer]
    else:
        known = context.broadcast(dict(by_partition))

        def judge(pair: tuple[str, Iterable[SegmentRows]]) -> PartitionVerdict:
            return judge_rows(known.value[pair[0]], pair[1])

        segments = [item for items in work.values() for item in items]
        bins = session.bins_by_size(segments, lambda w: w.segment.size, tasks)
        rows = context.parallelize(bins, max(len(bins), 1)).flatMap(inspect)
        verdicts = rows.groupByKey(min(len(by_partition), len(bins)) or 1).map(judge).collect()
    part.findings += [f for v in verdicts for f in v.findings]
    part.totals += [t for v in verdicts for t in v.totals]


def are_tasks(sizes: Sequence[int], slots: int) -> bool:
    """Whether partitions of these sizes keep all slots at work, with none so large that its task ends long after the
    others; or are read sooner than a shuffle begins."""
    return sum(sizes) <= SMALL_BYTES or (len(sizes) >= slots and max(sizes) <= session.TASK_BYTES)


def _quarantine(replicas: Sequence[Replica], findings: Sequence[Finding], wait_s: float | None) -> list[Any]:
    """Have brokers set damaged followers aside, after the audit's leases ended; returns a row per damaged replica."""
    brokers = {r.broker_id: r.lease.broker for r in replicas if r.lease is not None}
    rows = quarantine.set_aside(quarantine.suspects(replicas, findings), brokers, say)
    if wait_s is not None:
        quarantine.wait_in_sync(rows, brokers, wait_s)
    return rows


def without_lost(findings: list[Finding], replicas: Sequence[Replica], lost: dict[str, str]) -> list[Finding]:
    """Drop the findings on a replica whose lease was lost during the audit, since its files may have been deleted;
    report it as not audited instead: a warning, and a bad finding if it is so with all replicas of a partition."""
    gone = {
        (r.tp, r.broker_id): lost[r.lease.lease_id]
        for r in replicas
        if r.lease is not None and r.lease.lease_id in lost
    }
    partitions = {tp for tp, _ in gone}
    kept = [
        f
        for f in findings
        if ((f.topic, f.partition), f.replica) not in gone
        and not (f.check == "replicas" and (f.topic, f.partition) in partitions)
    ]
    kept += [
        Finding(WARN, "replica", *tp, broker_id, "", -1, -1, f"not audited to its end: {reason}")
        for (tp, broker_id), reason in gone.items()
    ]
    unaudited = partitions - {r.tp for r in replicas if (r.tp, r.broker_id) not in gone}
    text = "no replica could be audited to its end"
    return kept + [Finding(BAD, "replica", *tp, -1, "", -1, -1, text) for tp in sorted(unaudited)]


def _row(part: Audited) -> dict[str, Any]:
    """Return what the summary says of one topic."""
    found = _summary(part, 0.0)
    figures = {name: found[name] for name in ("verdict", "partitions", "replicas", "records", "bytes", "findings")}
    return {"topic_id": next((replica.topic_id for replica in part.replicas), None), **figures}


def _summary(whole: Audited, seconds: float) -> dict[str, Any]:
    replicas, findings, totals = whole.replicas, whole.findings, whole.totals
    levels = Counter(f.level for f in findings)
    verdict = BAD if levels[BAD] else WARN if levels[WARN] else OK
    compared: dict[str, int] = {}
    for replica in sorted(replicas, key=lambda r: r.tp):
        known = compared.get(str(replica.tp), replica.high_watermark)
        compared[str(replica.tp)] = min(known, replica.high_watermark)
    return {
        "job": "audit",
        "verdict": verdict,
        "topics": sorted({r.topic for r in replicas}),
        "partitions": len({r.tp for r in replicas}),
        "replicas": len(replicas),
        "segments": sum(len(r.segments) for r in replicas),
        "batches": sum(int(t["batches"]) for t in totals),
        "records": sum(int(t["records"]) for t in totals),
        "bytes": sum(int(t["bytes"]) for t in totals),
        "compared_to": compared,
        "findings": {BAD: levels[BAD], WARN: levels[WARN]},
        "first_findings": [f.to_json() for f in _worst_first(findings)[:FINDINGS_IN_SUMMARY]],
        "seconds": round(seconds, 2),
    }


def _worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: (f.level != BAD, f.topic, f.partition, f.replica, f.offset))


if __name__ == "__main__":
    sys.exit(main())
