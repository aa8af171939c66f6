"""Jobs on several topics, in one local Spark session: each topic has its own leases and its own failure."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.audit import job as audit
from logyard.spark_jobs.compact import job as compact
from logyard.spark_jobs.export import job as export
from tests.support.jobs_yard import Yard, damaged
from tests.support.lease_server import FakeReplica

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("spark")]


IDS = {**dict.fromkeys(("t", "damaged", "u", "v"), FakeReplica.topic_id), "absent": None}


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(tmp_path / "brokers", stack, monkeypatch)


def test_each_topic_has_its_own_leases_and_its_own_failure(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("damaged", "u", "v"):
        yard.add_topic(name)
    path = yard.brokers[1].replicas["damaged", 0].logs()[0]
    path.write_bytes(damaged(path.read_bytes()))
    held: list[set[str]] = []

    class Watched(dict[str, dict[str, Any]]):
        """Notes at each lease of which topics there are leases."""

        def __setitem__(self, name: str, lease: dict[str, Any]) -> None:
            super().__setitem__(name, lease)
            alive = [one for b in yard.brokers.values() for one in b.leases.values() if one["state"] == "active"]
            held.append({one["topic"] for one in alive})

    for broker in yard.brokers.values():
        broker.leases = Watched()
    names = ["--topic", "absent", "--topic", "damaged", "--topic", "u", "--topic", "v"]
    assert compact.main(["--topic", "t", *names, "--topics-at-once", "1"]) == 1
    captured = capsys.readouterr()
    summary = json.loads(captured.out.strip().splitlines()[-1])
    assert (summary["compacted"], summary["failed"]) == (4, 1)
    assert sorted(summary["topics_failed"]) == ["absent", "damaged"]
    assert summary["topics_failed"]["absent"] == "topic absent does not exist on fake"
    assert str(path) in summary["topics_failed"]["damaged"]
    rows = summary["by_topic"]
    assert {name: (row.get("compacted"), row.get("partitions_failed")) for name, row in rows.items()} == {
        "t": (2, 0), "absent": (None, None), "damaged": (0, 1), "u": (1, 0), "v": (1, 0),
    }  # fmt: skip
    assert {name: row.get("topic_id") for name, row in rows.items()} == IDS
    assert sum(row["records_after"] for row in rows.values() if "records_after" in row) == summary["records_after"]
    assert captured.err.strip().splitlines()[-1] == "compact: 2 of 5 topics failed: absent, damaged"
    assert max(len(topics) for topics in held) == 1, "the leases of one topic end before those of the next are taken"
    assert yard.leases_left() == []

    runs = {lease["run_id"] for broker in yard.brokers.values() for lease in broker.leases.values()}
    assert len(runs) == 4, "a run's end would end the others' leases"
    assert audit.main(["--topic", "t", *names]) == 2
    audited = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert list(audited["topics_failed"]) == ["absent"]
    assert {name: row.get("verdict") for name, row in audited["by_topic"].items()} == {
        "t": "warn", "absent": None, "damaged": "bad", "u": "ok", "v": "ok",
    }  # fmt: skip
    assert {name: row.get("topic_id") for name, row in audited["by_topic"].items()} == IDS
    assert audited["records"] == sum(row.get("records", 0) for row in audited["by_topic"].values())
    assert audit.main(["--topic", "u", "--topic", "absent"]) == 1
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["verdict"] == "ok"
    assert yard.leases_left() == []


def test_spark_does_not_start_where_nothing_is_due(
    yard: Yard, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.add_topic("u")
    assert compact.main(["--topic", "t", "--topic", "u"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("logyard.spark_jobs.session.start", lambda *_: pytest.fail("no partition is due"))
    assert compact.main(["--topic", "t", "--topic", "u"]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["skipped"] == 3


def test_an_export_gives_up_topics_one_by_one(yard: Yard, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("u", "v"):
        yard.add_topic(name)
    yard.brokers[1].replicas.pop(("v", 0))
    names = ["--topic", "u", "--topic", "v", "--topic", "absent"]
    assert export.main([*names, "--destination", str(tmp_path)]) == 1
    summary = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert summary["topics_failed"]["absent"] == "topic absent does not exist on fake"
    assert "v-0" in summary["topics_failed"]["v"]
    assert {name: (row["rows"] > 0, row["partitions"]) for name, row in summary["by_topic"].items()} == {
        "absent": (False, 0), "u": (True, 1), "v": (False, 0),
    }  # fmt: skip
    assert summary["by_topic"]["u"]["topic_id"] == IDS["u"], "by which the next try of a task knows it"
    assert summary["rows"] == summary["by_topic"]["u"]["rows"] == pq.read_table(tmp_path / "data").num_rows
