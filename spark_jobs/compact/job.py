"""Compact topics on live brokers: decide once per partition, rewrite every in-sync replica, let each broker swap.

    spark-submit spark_jobs/compact.py --cluster-file DIR/cluster.json --topic flights

Each topic has leases, a failure and a part of the summary of its own; a few are worked on at once, in one Spark
application, which starts when the first of them is due.

The last line printed is the summary as JSON. Exit status: 0 if every partition was compacted or had nothing to do, 1 if
one was not.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compiled.key_table import BYTES_PER_KEY
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs import session
from logyard.spark_jobs.command import positive, run_job, say
from logyard.spark_jobs.compact.partition import (
    PartitionRun,
    ReplicaRun,
    Rewritten,
    Surveyed,
    SurveyWork,
    lease_partitions,
    rewrite_replica,
    survey_over_tasks,
    survey_partition,
)
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.leases.client import UNSURE, Lease, end_run
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.progress import Progress, over_tasks
from logyard.spark_jobs.turns import add_option, take_turns

# 20 million keys: with its Python, such a task stays below 1 GB.
TASK_MEMORY_MIB = 800


def main(argv: Sequence[str] | None = None) -> int:
    """Run the compaction; returns the exit status."""
    parser = argparse.ArgumentParser(prog="compact.py", description=__doc__.split("\n")[0] if __doc__ else None)
    clusters.add_arguments(parser)
    add_option(parser)
    parser.add_argument(
        "--wait-s",
        type=float,
        default=60.0,
        metavar="S",
        help="how long to wait for another run's leases on a topic (60)",
    )
    parser.add_argument("--force", action="store_true", help="also compact logs whose dirty ratio is too low")
    parser.add_argument(
        "--task-memory",
        type=positive,
        default=TASK_MEMORY_MIB,
        metavar="MIB",
        help=f"memory for a partition's keys in one task ({TASK_MEMORY_MIB}); keys that need more are shuffled",
    )
    parser.add_argument("--max-keys", type=positive, metavar="N", help="the same, as a number of keys (40 bytes each)")
    return run_job(parser, argv, compact)


def compact(arguments: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Compact; returns the exit status and the summary."""
    began = time.monotonic()
    session.need_rdds("compact")
    if not arguments.topic:
        raise JobFailed("name the topics to compact with --topic")
    cluster = clusters.RecentCluster(arguments)
    # Started by the first topic that is due; the others are looked at meanwhile.
    spark = session.SparkStart("logyard compact")

    def work(topic: str) -> tuple[list[PartitionRun], str]:
        runs = _compact_topic(topic, arguments, cluster.look(), spark)
        for run in runs:
            run.forget()
        return runs, "; ".join(f"{run.tp}: {run.failure}" for run in runs if run.failure)

    turns = take_turns("compact", arguments.topic, work, arguments.topics_at_once)
    summary = _summary([run for runs in turns.parts for run in runs], time.monotonic() - began)
    rows = turns.rows(_row)
    return (1 if turns.failed else 0), summary | {"by_topic": rows, "topics_failed": turns.failed}


def _compact_topic(
    topic: str, arguments: argparse.Namespace, cluster: clusters.Cluster, spark: session.SparkStart
) -> list[PartitionRun]:
    """Compact one topic, under leases that are taken here and end here."""
    run_id = clusters.run_id("compact")
    with ExitStack() as stack:
        leases: list[Lease] = []
        beats = stack.enter_context(Heartbeats(leases, arguments.lease_ttl_s * 1000))
        stack.callback(end_run, leases, "the compaction is over")
        runs = []
        for run in lease_partitions(cluster, topic, run_id, leases, force=arguments.force, wait_s=arguments.wait_s):
            runs.append(run)
            if run.is_due:
                spark.begin()
        due = [run for run in runs if run.is_due]
        say(f"compact: {topic}: {len(due)} of {len(runs)} partitions are due")
        if due:
            keys_max = arguments.max_keys or arguments.task_memory * 2**20 // BYTES_PER_KEY
            _in_spark(spark.context(), due, beats, keys_max)
    return runs


def _in_spark(context: Any, runs: Sequence[PartitionRun], beats: Heartbeats, keys_max: int) -> None:
    """Run pass 1, pass 2 and the commits; each PartitionRun is updated with its results."""
    surveys = [r.survey_work(keys_max) for r in runs]
    read = over_tasks(context, Progress("compact: pass 1", {str(s.leader.tp): s.size for s in surveys}, say))

    def survey_one(work: SurveyWork) -> Surveyed:
        surveyed = survey_partition(work)
        read(str(work.leader.tp), work.size)
        return surveyed

    for run, survey, surveyed in zip(runs, surveys, session.run_each(context, surveys, survey_one), strict=True):
        run.is_shuffled = surveyed.too_many_keys
        if run.is_shuffled:
            say(f"compact: {run.tp} has more than {keys_max:,} keys: they are shuffled")
        _note_survey(run, survey_over_tasks(context, survey) if run.is_shuffled else surveyed)
    decided = [run for run in runs if run.decision is not None]
    decisions = context.broadcast({str(run.tp): run.decision.encode() for run in decided if run.decision})

    sizes = {str(run.tp): sum(r.size for r in run.replicas) for run in decided}
    written = over_tasks(context, Progress("compact: pass 2", sizes, say))

    def rewrite(replica: ReplicaRun) -> Rewritten:
        rewritten = rewrite_replica(replica, Decision.decode(decisions.value[str(replica.tp)]))
        written(str(replica.tp), replica.size)
        return rewritten

    work = [(run, replica) for run in decided for replica in run.replicas]
    for (run, replica), rewritten in zip(work, session.run_each(context, [r for _, r in work], rewrite), strict=True):
        run.rewritten[replica.lease.broker.broker_id] = rewritten
    for run in decided:
        _commit(run, beats)
        survivors = len(run.decision.survivors) if run.decision else 0
        say(f"compact: {run.tp} {run.outcome}, {survivors:,} of {run.records_surveyed:,} records stay")


def _note_survey(run: PartitionRun, surveyed: Surveyed) -> None:
    if surveyed.failure:
        run.failure = surveyed.failure
        return
    run.decision = Decision.decode(surveyed.decision)
    run.keys = surveyed.keys
    run.records_surveyed = surveyed.records


def _commit(run: PartitionRun, beats: Heartbeats) -> None:
    """Commit the followers, then the leader; a replica that fails keeps its segments, and the run names it.

    If a broker dies during its commit, it is asked for the outcome after the other replicas have committed.
    """
    assert run.decision is not None
    unsure: list[tuple[Lease, LeaseError]] = []
    for replica in sorted(run.replicas, key=lambda r: (r.lease.is_leader, r.lease.broker.broker_id)):
        broker_id = replica.lease.broker.broker_id
        rewritten = run.rewritten[broker_id]
        reason = rewritten.failure or beats.lost.get(replica.lease.lease_id)
        if not reason:
            try:
                run.committed[broker_id] = replica.lease.try_commit(
                    run.decision.to_commit(), list(rewritten.groups), run.decision.range_end
                )
                continue
            except LeaseError as error:
                reason = str(error)
                if error.code in UNSURE:
                    unsure.append((replica.lease, error))
                    continue
        run.failure = f"broker {broker_id}: {reason}"
    for lease, first in unsure:
        try:
            run.committed[lease.broker.broker_id] = lease.committed_after_all(first)
        except LeaseError as error:
            run.failure = f"broker {lease.broker.broker_id}: {error}"


def _row(runs: Sequence[PartitionRun]) -> dict[str, Any]:
    """Return what the summary says of one topic, beside the details of its partitions."""
    figures = ("partitions", "compacted", "skipped", "records_before", "records_after", "bytes_before", "bytes_after")
    found = _summary(runs, 0.0)
    said = {name: found[name] for name in figures} | {"partitions_failed": found["failed"]}
    return {"topic_id": next((run.topic_id for run in runs if run.topic_id), None), **said}


def _summary(runs: Sequence[PartitionRun], seconds: float) -> dict[str, Any]:
    outcome = Counter(run.outcome for run in runs)
    leaders = [run.rewritten[run.leader_id] for run in runs if run.leader_id in run.committed]
    every = [run.rewritten[b] for run in runs for b in run.committed]
    committed = [answer for run in runs for answer in run.committed.values()]
    return {
        "job": "compact",
        "topics": sorted({run.tp.topic for run in runs}),
        "partitions": len(runs),
        "compacted": outcome["compacted"],
        "skipped": outcome["skipped"],
        "failed": outcome["failed"],
        "replicas_compacted": len(committed),
        "records_before": sum(w.records_in for w in leaders),
        "records_after": sum(w.records_out for w in leaders),
        "bytes_before": sum(w.bytes_in for w in leaders),
        "bytes_after": sum(w.bytes_out for w in leaders),
        "bytes_rewritten": sum(w.bytes_in for w in every),
        "segments_before": sum(int(a.get("segments_before", 0)) for a in committed),
        "segments_after": sum(int(a.get("segments_after", 0)) for a in committed),
        "keys": sum(run.keys for run in runs),
        "details": {str(run.tp): run.to_json() for run in runs},
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
