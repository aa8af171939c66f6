"""An audit of all topics: what nobody answered for is not passed over, and nothing at all is no success."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logyard.spark_jobs import cluster, turns
from logyard.spark_jobs.audit import job
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata


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


def test_a_directory_that_came_or_went_meanwhile_is_no_stray(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([["/data/odd", "/data/new-0", "/data/gone-0"], ["/data/odd", "/data/newer-0"]])
    monkeypatch.setattr(job, "STRAYS_AGAIN_S", 0.0)
    monkeypatch.setattr(job, "partitions_status", lambda broker: {"strays": next(looks)})
    found = findings_of(monkeypatch, Metadata("c", (1,), {}), {1: BrokerHttp(1, "127.0.0.1:1", "t")})
    assert [(each["check"], each["file"]) for each in found] == [("stray", "/data/odd")]


class Told(NamedTuple):
    """What a whole run of the job left: its status, its summary, and its other lines."""

    status: int
    summary: dict[str, Any]
    lines: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """Run the job on a cluster with a topic of which nobody answers; `true`: what the controller knows."""

    def go(*words: str, true: Metadata | None = None) -> Told:
        known = Metadata("c", (1,), {}, missing=("half-made",))
        there = Cluster(known, {}, witness=lambda _topics: true or known)
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: there)
        status = job.main(words)
        told = capsys.readouterr()
        return Told(status, json.loads(told.out.splitlines()[-1]) if told.out else {}, told.err)

    return go


def test_a_report_that_cannot_be_written_in_the_end_does_not_lose_the_audit(
    run: Callable[..., Told], tmp_path: Path
) -> None:
    (tmp_path / "index.html").mkdir()
    told = run("--report", str(tmp_path))
    assert told.status == 1
    assert told.summary["first_findings"][0]["topic"] == "half-made"
    assert "the report could not be written: [Errno 21] Is a directory" in told.summary["error"]
    assert '"topic": "half-made"' in told.lines


def test_a_place_that_takes_no_report_is_refused_before_the_work(run: Callable[..., Told], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = run("--report", str(tmp_path / "file" / "report"), "--topic", "never-looked-at")
    assert told.status == 1
    assert told.summary == {}
    assert "Not a directory" in told.lines


def test_a_summary_that_has_no_file_is_printed(run: Callable[..., Told], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = run("--output", str(tmp_path / "file" / "summary.json"))
    assert (told.status, told.summary["findings"]["warn"]) == (1, 1)
    assert "the summary could not be written" in told.lines


def test_nothing_to_audit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    internal = Metadata("c", (1,), {"__consumer_offsets": {}}, internal=frozenset({"__consumer_offsets"}))
    with pytest.raises(JobFailed, match="there is no topic to audit"):
        findings_of(monkeypatch, internal)


def test_a_topic_that_the_broker_that_was_asked_does_not_know_is_not_left_out(
    run: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logyard.spark_jobs.session.start", lambda *_: None)  # there is nothing to read
    place = PartitionMetadata(1, (1,), (1,))
    told = run(true=Metadata("c", (1,), {"t": {0: place}}))
    assert [(f["level"], f["topic"]) for f in told.summary["first_findings"]] == [("bad", "t"), ("warn", "t")]
