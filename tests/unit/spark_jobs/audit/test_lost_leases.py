"""What an audit says of replicas whose leases were lost before it had read them to their ends."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.job import without_lost
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition

TP = TopicPartition("t", 0)


@pytest.fixture
def replicas(tmp_path: Path) -> list[Replica]:
    found = []
    for broker in (1, 2):
        directory = write_partition(tmp_path / str(broker), "t-0", [[batch([Rec(0, b"k", b"v")])]])
        lease: Any = SimpleNamespace(lease_id=f"of {broker}")
        found.append(replace(of_partition_directory(str(directory), broker), lease=lease))
    return found


def bad(broker: int, check: str = "readable") -> Finding:
    return Finding(BAD, check, *TP, broker, "file", 0, 0, "")


def said(findings: list[Finding]) -> list[tuple[str, int, str]]:
    return [(found.level, found.replica, found.message) for found in findings]


def test_what_was_found_of_a_lost_replica_does_not_count(replicas: list[Replica]) -> None:
    found = without_lost([bad(1), bad(2, "crc"), bad(1, "replicas")], replicas, {"of 1": "it has ended"})
    assert said(found) == [(BAD, 2, ""), (WARN, 1, "not audited to its end: it has ended")]


def test_a_partition_of_which_all_replicas_are_lost_is_not_sound(replicas: list[Replica]) -> None:
    """Their broker was started again, say: an audit that has looked at none of them must not end well."""
    found = without_lost([bad(1), bad(2)], replicas, {"of 1": "it has ended", "of 2": "it has ended"})
    assert said(found) == [
        (WARN, 1, "not audited to its end: it has ended"),
        (WARN, 2, "not audited to its end: it has ended"),
        (BAD, -1, "no replica could be audited to its end"),
    ]
    assert without_lost([], replicas, {}) == []
