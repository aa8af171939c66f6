"""One partition's compaction, from leases to rewritten parts: what the driver decides, and the tasks of both passes.

A task returns its failure as text, so that one damaged partition does not end the others.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.old_formats import expired_offsets
from logyard.broker.compaction.ranges import SegmentRange, dirty_ratio, is_due
from logyard.broker.compiled.key_table import KeyTable, TooManyKeys
from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.compact.rewrite import Rewriter, plan_groups
from logyard.spark_jobs.compact.shuffle import survey_shuffled
from logyard.spark_jobs.compact.survey import survey_segments
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.leases.client import Lease, end_leases
from logyard.spark_jobs.metadata import PartitionMetadata
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import COMPACT, Replica, of_leased

ATTEMPTS = 3
ATTEMPT_PAUSE_S = 1.0
HELD_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class ReplicaRun:
    """One leased replica: plain data for a task."""

    tp: TopicPartition
    lease: Lease
    replica: Replica

    @property
    def size(self) -> int:
        """The bytes of all its leased segments."""
        return sum(s.size for s in self.replica.segments)


@dataclass(frozen=True, slots=True)
class SurveyWork:
    """Input of pass 1: the leader's replica and the bounds."""

    leader: ReplicaRun
    range_end: int
    tombstone_cutoff: int
    keys_max: int

    @property
    def segments(self) -> list[SegmentFile]:
        return [s for s in self.leader.replica.segments if s.base_offset < self.range_end]

    @property
    def size(self) -> int:
        """The bytes that pass 1 reads."""
        return sum(s.size for s in self.segments)

    def new_survey(self) -> Survey:
        """Return a survey before its first batch."""
        replica, lease = self.leader.replica, self.leader.lease
        producers = {
            int(p["producer_id"]): ActiveProducer(int(p["last_offset"]), int(p["producer_epoch"]))
            for p in lease.details.get("producers", [])
        }
        segments = self.segments
        return Survey(
            topic=replica.topic,
            partition=replica.partition,
            leader_epoch=lease.leader_epoch,
            range_start=segments[0].base_offset if segments else self.range_end,
            range_end=self.range_end,
            now_ms=replica.now_ms,
            delete_retention_ms=int(replica.config["delete.retention.ms"]),
            tombstone_cutoff=self.tombstone_cutoff,
            aborted=replica.aborted,
            producers=producers,
            expired=self._expired(),
        )

    def _expired(self) -> tuple[tuple[int, int], ...]:
        """Return the offset ranges whose tombstones of old formats may be removed, by the age of the leader's files."""
        replica, lease = self.leader.replica, self.leader.lease
        ranges = ((SegmentRange(s.base_offset, s.last_offset, s.size), s.mtime_ms) for s in lease.segments)
        return expired_offsets(ranges, replica.clean_offset, int(replica.config["delete.retention.ms"]))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Result of pass 1: the encoded decision, and how many records and keys it has seen."""

    decision: bytes = b""
    records: int = 0
    keys: int = 0
    failure: str = ""
    too_many_keys: bool = False


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Result of pass 2 for one replica: the commit's groups, and sums over the segments that it read."""

    groups: tuple[dict[str, Any], ...] = ()
    bytes_in: int = 0
    bytes_out: int = 0
    records_in: int = 0
    records_out: int = 0
    failure: str = ""


@dataclass(slots=True)
class PartitionRun:
    """The state of one partition in a run, from the leases to the commits."""

    tp: TopicPartition
    replicas: list[ReplicaRun] = field(default_factory=list)
    topic_id: str | None = None
    leader_id: int = -1
    range_end: int = 0
    tombstone_cutoff: int = 0
    is_due: bool = False
    skipped: str = ""
    failure: str = ""
    absent: dict[int, str] = field(default_factory=dict)
    decision: Decision | None = None
    records_surveyed: int = 0
    keys: int = 0
    is_shuffled: bool = False
    rewritten: dict[int, Rewritten] = field(default_factory=dict)
    committed: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        return "failed" if self.failure else "skipped" if self.skipped else "compacted"

    def forget(self) -> None:
        """Let go of what only the run needs: a decision has 8 bytes for each record that stays, and a job may go on
        with many topics."""
        self.decision = None
        self.replicas = []

    def survey_work(self, keys_max: int) -> SurveyWork:
        leader = next(r for r in self.replicas if r.lease.is_leader)
        return SurveyWork(leader, self.range_end, self.tombstone_cutoff, keys_max)

    def to_json(self) -> dict[str, Any]:
        """Return the partition's part of the summary."""
        leader = self.rewritten.get(self.leader_id, Rewritten())
        return {
            "outcome": self.outcome,
            "reason": self.failure or self.skipped or None,
            "plan": "shuffle" if self.is_shuffled else "local",
            "keys": self.keys,
            "range_end": self.range_end,
            "tombstone_cutoff": self.tombstone_cutoff,
            "records_before": leader.records_in,
            "records_after": leader.records_out,
            "bytes_before": leader.bytes_in,
            "bytes_after": leader.bytes_out,
            "replicas": sorted(self.committed),
            "absent": {str(b): reason for b, reason in sorted(self.absent.items())},
        }


def lease_partitions(
    cluster: Cluster, topic: str, run_id: str, leases: list[Lease], *, force: bool = False, wait_s: float = 0.0
) -> Iterator[PartitionRun]:
    """Lease a topic's partitions, one after the other. They share the time to wait for another run, which may hold all
    of what may be thousands.

    :param leases: gets each lease as soon as it is taken, to be renewed, and loses those that are given back.
    """
    left_s = wait_s
    for tp, place in cluster.partitions([topic]):
        began = time.monotonic()
        run = lease_partition(cluster, tp, place, run_id, leases, force=force, wait_s=left_s)
        taken_s = time.monotonic() - began
        if taken_s >= HELD_PAUSE_S:
            left_s = max(left_s - taken_s, 0.0)
        yield run


def lease_partition(
    cluster: Cluster,
    tp: TopicPartition,
    place: PartitionMetadata,
    run_id: str,
    leases: list[Lease],
    *,
    force: bool = False,
    wait_s: float = 0.0,
) -> PartitionRun:
    """Lease every replica and decide the range to compact; `leases` is as in `lease_partitions`.

    Tries again if the leader changes meanwhile, and for `wait_s` if another run (or the broker's own cleaner) holds a
    lease; a partition that stays leased is skipped.
    """
    deadline = time.monotonic() + wait_s
    attempts = 0
    while True:
        run = PartitionRun(tp)
        held = _take_leases(cluster, run, place, run_id, leases)
        if held and time.monotonic() < deadline:
            _give_back(run, held, leases)
            time.sleep(HELD_PAUSE_S)
            continue
        if _settle(run, place, leases, force=force):
            return run
        _give_back(run, run.failure, leases)
        attempts += 1
        if attempts == ATTEMPTS:
            return run
        time.sleep(ATTEMPT_PAUSE_S)


def _give_back(run: PartitionRun, reason: str, leases: list[Lease]) -> None:
    """End the leases of a run."""
    mine = [r.lease for r in run.replicas]
    _keep(run, [], leases)
    end_leases(mine, reason)


def _keep(run: PartitionRun, replicas: list[ReplicaRun], leases: list[Lease]) -> None:
    """Have the run go on with these of its replicas; all its leases are the last ones of `leases`."""
    leases[len(leases) - len(run.replicas) :] = [r.lease for r in replicas]
    run.replicas = replicas


def _take_leases(
    cluster: Cluster, run: PartitionRun, place: PartitionMetadata, run_id: str, leases: list[Lease]
) -> str:
    """Lease the replicas that can be leased; returns why another run holds one, "" if none does."""
    held = ""
    for broker_id in place.replicas:
        try:
            lease = cluster.lease(broker_id, run.tp, run_id, COMPACT)
        except LeaseError as error:
            run.absent[broker_id] = str(error)
            if error.code in ("not_compacted", "moving", "lease_held"):
                run.skipped = str(error)
            if error.code == "lease_held":
                held = str(error)
            continue
        try:
            run.replicas.append(ReplicaRun(run.tp, lease, of_leased(lease)))
            run.topic_id = run.replicas[-1].replica.topic_id
            # At once: the next broker may hang for as long as a lease lives.
            leases.append(lease)
        except LeaseError as error:
            lease.abort(str(error))
            run.absent[broker_id] = str(error)
    return held


def _settle(run: PartitionRun, place: PartitionMetadata, leases: list[Lease], *, force: bool) -> bool:
    """Set range, tombstone cut-off and whether the partition is due; False if the leases contradict each other."""
    if run.skipped:
        _give_back(run, run.skipped, leases)
        return True
    leaders = [r for r in run.replicas if r.lease.is_leader]
    if len(leaders) != 1 or len({r.lease.leader_epoch for r in run.replicas}) != 1:
        run.failure = f"no single leader among the leases taken ({len(run.replicas)} of {len(place.replicas)} replicas)"
        run.failure += "".join(f"; {reason}" for reason in run.absent.values())
        return False
    if len({r.replica.topic_id for r in run.replicas} - {None}) > 1:
        # Of the former topic and of the new one: a leader's decision is about its own records alone.
        run.failure = "the topic was deleted and created again while its replicas were leased"
        return False
    leader = leaders[0]
    run.leader_id = leader.lease.broker.broker_id
    # A follower outside the ISR may lack records: it is not rewritten, and no tombstone is removed before it was.
    isr = {int(b) for b in leader.lease.details["isr"]}
    behind = [r for r in run.replicas if r.lease.broker.broker_id not in isr]
    for replica in behind:
        run.absent[replica.lease.broker.broker_id] = "not in the ISR"
        replica.lease.abort("not in the ISR")
    _keep(run, [r for r in run.replicas if r not in behind], leases)
    run.range_end = min(r.lease.end_offset for r in run.replicas)
    run.tombstone_cutoff = 0 if run.absent else min(r.replica.clean_offset for r in run.replicas)
    run.is_due, run.skipped = _judge(run, leader.replica, force)
    return True


def _judge(run: PartitionRun, leader: Replica, force: bool) -> tuple[bool, str]:
    """Return whether the partition is due, and why not ("" if it is)."""
    clean = min(r.replica.clean_offset for r in run.replicas)
    ranges = [SegmentRange(s.base_offset, s.last_offset, s.size) for s in leader.segments]
    ratio = dirty_ratio(ranges, clean, run.range_end)
    config = leader.config
    due = is_due(
        ratio,
        min_ratio=float(config["min.cleanable.dirty.ratio"]),
        first_dirty_at_ms=int(leader.lease.details["first_dirty_at_ms"]) if leader.lease else -1,
        max_lag_ms=int(config["max.compaction.lag.ms"]),
        now_ms=leader.now_ms,
        end_offset=run.range_end,
        clean_offset=clean,
    )
    if due or (force and ranges and run.range_end > leader.log_start_offset):
        return True, ""
    if run.range_end <= clean:
        return False, f"nothing to clean between {clean} and {run.range_end}"
    return False, f"dirty ratio {ratio:.2f} is not above {config['min.cleanable.dirty.ratio']}"


def survey_partition(work: SurveyWork) -> Surveyed:
    """Run pass 1 in a task; stops with `too_many_keys` if there are more keys than a task may hold."""
    table = KeyTable(keys_max=work.keys_max)
    try:
        decision = survey_segments(work.segments, work.new_survey(), table)
    except TooManyKeys:
        return Surveyed(too_many_keys=True)
    except (LogyardError, OSError) as error:
        return _survey_failed(work, error)
    return Surveyed(decision.encode(), table.records, table.count)


def survey_over_tasks(context: Any, work: SurveyWork) -> Surveyed:
    """Run pass 1 of a partition whose keys do not fit one task, by a shuffle that the driver starts."""
    try:
        decision, buckets = survey_shuffled(context, work.segments, work.new_survey, work.keys_max)
    except LogyardError as error:
        return _survey_failed(work, error)
    return Surveyed(decision.encode(), sum(b.records for b in buckets), sum(b.keys for b in buckets))


def _survey_failed(work: SurveyWork, error: Exception) -> Surveyed:
    return Surveyed(failure=f"pass 1 on broker {work.leader.lease.broker.broker_id}: {error}")


def rewrite_replica(work: ReplicaRun, decision: Decision) -> Rewritten:
    """Run pass 2 for one replica in a task: write parts into the broker's directory if this host sees it, otherwise
    upload them."""
    lease = work.lease
    local = lease.local_parts()
    directory = local or tempfile.mkdtemp(prefix="logyard-parts-", dir=_scratch())
    try:
        rewriter = Rewriter(decision, directory)
        for group in plan_groups(work.replica.segments, decision, dict(work.replica.config)):
            part = rewriter.rewrite(group)
            if part is not None and local is None:
                lease.put_part(part.segments[0], part.path, part.size, part.sha256)
                os.unlink(part.path)
    except (LogyardError, OSError) as error:
        return Rewritten(failure=f"pass 2: {error}")
    finally:
        if local is None:
            shutil.rmtree(directory, ignore_errors=True)
    result = rewriter.result
    return Rewritten(
        groups=tuple(part.to_group() for part in result.parts),
        bytes_in=result.bytes_in,
        bytes_out=result.bytes_out,
        records_in=result.records_in,
        records_out=result.records_out,
    )


def _scratch() -> str | None:
    """Return one of the directories that Spark gives this executor's tasks, and deletes when the executor or its host's
    worker ends: a worker that is killed deletes nothing itself. None where there is none."""
    return next(filter(os.path.isdir, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")), None)
