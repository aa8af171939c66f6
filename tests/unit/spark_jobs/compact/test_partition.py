"""A partition's run: what the summary keeps of it once its topic is done."""

from typing import Any

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.compact.partition import PartitionRun, Rewritten


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
