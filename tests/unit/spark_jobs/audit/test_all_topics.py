"""An audit of all topics: what nobody answered for is not passed over, and nothing at all is no success."""

import argparse
from typing import Any

import pytest

from logyard.spark_jobs import cluster, turns
from logyard.spark_jobs.audit import job
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.metadata import Metadata


def findings_of(
    monkeypatch: pytest.MonkeyPatch, metadata: Metadata, brokers: dict[int, BrokerHttp] | None = None
) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    turns.add_option(parser)
    parser.set_defaults(log_dir=[], quarantine=False, re_replicate=None, shallow=False, report=None)
    monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: Cluster(metadata, brokers or {}))
    monkeypatch.setattr("logyard.spark_jobs.session.start", lambda *_: pytest.fail("there is nothing to read"))
    found: list[dict[str, Any]] = job.audit(parser.parse_args([]))[1]["first_findings"]
    return found


def test_a_topic_without_an_answer_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = findings_of(monkeypatch, Metadata("c", (1,), {}, missing=("half-made",)))
    assert (found["level"], found["topic"]) == ("warn", "half-made")
    assert "not audited" in found["message"]


def test_a_broker_that_does_not_answer_does_not_end_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replicas are a warning each, and so are its stray directories, which nobody has looked for."""
    away = {1: BrokerHttp(1, "127.0.0.1:1", "t")}
    found = findings_of(monkeypatch, Metadata("c", (1,), {}, missing=("half-made",)), away)
    assert sorted((each["level"], each["check"], each["replica"]) for each in found) == [
        ("warn", "replica", -1),
        ("warn", "stray", 1),
    ]
    said = next(each["message"] for each in found if each["check"] == "stray")
    assert "its directories were not looked at: broker 1 at http://127.0.0.1:1" in said


def test_nothing_to_audit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    internal = Metadata("c", (1,), {"__consumer_offsets": {}}, internal=frozenset({"__consumer_offsets"}))
    with pytest.raises(JobFailed, match="there is no topic to audit"):
        findings_of(monkeypatch, internal)
