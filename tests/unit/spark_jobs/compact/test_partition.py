"""A partition's run: what the summary keeps of it once its topic is done."""

import os
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.model import TopicPartition
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.compact import job, partition
from logyard.spark_jobs.compact.partition import (
    PartitionRun,
    Rewritten,
    lease_partition,
    lease_partitions,
    rewrite_replica,
    survey_partition,
)
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import Lease
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata
from tests.support.batches import Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

TP = TopicPartition("t", 0)
LOG = [[batch([Rec(at, b"k", b"v"), Rec(at + 1, b"k", b"w")])] for at in range(0, 6, 2)]


def of(brokers: list[FakeBroker]) -> Cluster:
    return Cluster(Metadata("c", (), {}), {b.broker_id: BrokerHttp(b.broker_id, b.address, b.token) for b in brokers})


def test_the_summary_needs_neither_the_decision_nor_the_leases() -> None:
    large: Any = object()
    run = PartitionRun(TopicPartition("t", 0), [large], leader_id=1, decision=large, keys=3, records_surveyed=9)
    run.rewritten[1] = Rewritten(bytes_in=10, bytes_out=5, records_in=9, records_out=3)
    run.committed[1] = {"segments_before": 2, "segments_after": 1}
    before = run.to_json()
    run.forget()
    assert (run.decision, run.replicas) == (None, [])
    assert run.to_json() == before
    assert (before["outcome"], before["records_after"], before["replicas"]) == ("compacted", 3, [1])


def test_a_topic_that_another_run_holds_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def held(*_: Any) -> Any:
        raise LeaseError("lease_held", "another run holds it")

    monkeypatch.setattr(partition, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(Cluster, "lease", held)
    places = {number: PartitionMetadata(1, (1,), (1,)) for number in range(50)}
    cluster = Cluster(Metadata("c", (1,), {"t": places}), {})
    runs = list(lease_partitions(cluster, "t", "compact-1", [], wait_s=60))
    assert [run.outcome for run in runs] == ["skipped"] * 50
    assert now[0] - 100 <= 60 + partition.HELD_PAUSE_S


def test_replicas_of_a_topic_that_was_made_again_are_not_compacted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker still had the former topic: which of its records survive says nothing of the new topic's."""
    monkeypatch.setattr(partition, "ATTEMPT_PAUSE_S", 0.0)
    with ExitStack() as stack:
        brokers = []
        for number, topic_id in ((1, "AAAAAAAAAAAAAAAAAAAAAQ"), (2, "BBBBBBBBBBBBBBBBBBBBBQ")):
            home = write_partition(tmp_path / str(number), "t-0", LOG)
            replica = FakeReplica(home, number == 1, isr=(1, 2), topic_id=topic_id)
            brokers.append(stack.enter_context(FakeBroker(number, {TP: replica})))
        leases: list[Lease] = []
        run = lease_partition(of(brokers), TP, PartitionMetadata(1, (1, 2), (1, 2)), "run", leases, force=True)
        assert (run.outcome, run.is_due, run.replicas, leases) == ("failed", False, [], [])
        assert "the topic was deleted and created again" in run.failure
        assert {lease["state"] for broker in brokers for lease in broker.leases.values()} == {"aborted"}


def test_parts_to_upload_lie_where_spark_deletes_what_a_killed_worker_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark kills a worker whose task it gives up (SIGKILL), which then deletes nothing itself."""
    (tmp_path / "blockmgr").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/gone,{tmp_path}/blockmgr")
    put, places = Lease.put_part, []

    def noted(lease: Lease, base: int, path: str, *rest: Any) -> None:
        places.append(Path(path))
        put(lease, base, path, *rest)

    monkeypatch.setattr(Lease, "put_part", noted)
    replica = FakeReplica(write_partition(tmp_path / "1", "t-0", LOG), True, isr=(1,))
    with FakeBroker(1, {TP: replica}, hidden=True) as broker:
        run = lease_partition(of([broker]), TP, PartitionMetadata(1, (1,), (1,)), "run", [], force=True)
        surveyed = survey_partition(run.survey_work(1000))
        assert rewrite_replica(run.replicas[0], Decision.decode(surveyed.decision)).failure == ""
    assert places
    assert {path.parents[1] for path in places} == {tmp_path / "blockmgr"}
    assert os.listdir(tmp_path / "blockmgr") == []


def test_leases_are_renewed_while_the_next_broker_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as long as a lease lives: those that were taken before would be lost."""
    replica = FakeReplica(write_partition(tmp_path, "t-0", LOG), True, isr=(1,), clean_offset=4)
    places = {0: PartitionMetadata(1, (1, 2), (1,))}
    take = Cluster.lease
    renewed: list[int] = []

    def lease(self: Cluster, broker_id: int, *about: Any) -> Lease:
        if broker_id == 1:
            return take(self, broker_id, *about)
        deadline = time.monotonic() + 10
        while not (beats := sum(request.endswith("/heartbeat") for request in broker.requests)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        renewed.append(beats)
        raise LeaseError("unreachable", "timed out")

    with FakeBroker(1, {TP: replica}) as broker:
        cluster = Cluster(Metadata("c", (), {"t": places}), {1: BrokerHttp(1, broker.address, broker.token)})
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: cluster)
        monkeypatch.setattr(Cluster, "lease", lease)
        assert job.main(["--topic", "t", "--lease-ttl-s", "5"]) == 0
    assert renewed[0] >= 1
