"""A partition's run: what the summary keeps of it once its topic is done."""

from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.compact import partition
from logyard.spark_jobs.compact.partition import PartitionRun, Rewritten, lease_partitions
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata


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
    runs = list(lease_partitions(cluster, "t", "compact-1", wait_s=60))
    assert [run.outcome for run in runs] == ["skipped"] * 50
    assert now[0] - 100 <= 60 + partition.HELD_PAUSE_S
