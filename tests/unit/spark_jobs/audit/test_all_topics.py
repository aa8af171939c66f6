"""An audit of all topics: what nobody answered for is not passed over, and nothing at all is no success."""

import argparse

import pytest

from logyard.spark_jobs import cluster
from logyard.spark_jobs.audit import job
from logyard.spark_jobs.audit.findings import Finding
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.metadata import Metadata


def findings_of(monkeypatch: pytest.MonkeyPatch, metadata: Metadata) -> list[Finding]:
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: Cluster(metadata, {}))
    found: list[Finding] = []
    assert job.leased_replicas(parser.parse_args([]), found, []) == []
    return found


def test_a_topic_without_an_answer_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = findings_of(monkeypatch, Metadata("c", (1,), {}, missing=("half-made",)))
    assert (found.level, found.topic) == ("warn", "half-made")
    assert "not audited" in found.message


def test_nothing_to_audit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    internal = Metadata("c", (1,), {"__consumer_offsets": {}}, internal=frozenset({"__consumer_offsets"}))
    with pytest.raises(JobFailed, match="there is no topic to audit"):
        findings_of(monkeypatch, internal)
