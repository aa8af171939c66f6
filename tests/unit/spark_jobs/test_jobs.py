"""The three jobs end to end in one local Spark session, on brokers that are directories behind a strict lease
server."""

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
from logyard.spark_jobs.session import TASK_BYTES
from tests.support import compaction_model as model
from tests.support.batches import CONTROL, headers_of, read_back
from tests.support.jobs_yard import Yard, damaged

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("spark")]


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(tmp_path / "brokers", stack, monkeypatch)


def run(job: Any, capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, Any]:
    assert job.main(["--topic", "t", *arguments]) == status
    out = capsys.readouterr().out.strip().splitlines()
    return dict(json.loads(out[-1])) if status in (0, 2) else {}


def test_compact_leaves_the_same_last_records_on_every_replica(
    yard: Yard, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    summary = run(compact, capsys, "--output", str(tmp_path / "out" / "summary.json"))
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert (summary["compacted"], summary["replicas_compacted"], summary["failed"]) == (2, 6, 0)
    for partition, log in yard.logs.items():
        end = yard.end_of_closed(partition)
        expected, _ = model.kept(log, end=end, now_ms=1_700_000_000_000, cutoff=0)
        before = {r.offset: r for b in log.batches if not b.flags & CONTROL for r in b.records}
        for broker_id in (1, 2, 3):
            assert yard.records_of(broker_id, partition) == [before[o] for o in sorted(expected)]
            assert yard.replica(broker_id, partition).clean_offset == end
    assert summary["records_after"] < summary["records_before"]
    assert yard.leases_left() == []
    assert any(r.startswith("PUT") for r in yard.brokers[3].requests)
    assert not any(r.startswith("PUT") for r in yard.brokers[1].requests)

    again = run(compact, capsys)
    assert (again["skipped"], again["compacted"]) == (2, 0)
    assert "nothing to clean" in again["details"]["t-0"]["reason"]

    assert run(audit, capsys)["findings"]["bad"] == 0


def test_keys_that_do_not_fit_a_task_are_shuffled_to_the_same_end(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(compact, capsys, "--max-keys", "5")
    assert {d["plan"] for d in summary["details"].values()} == {"shuffle"}
    assert (summary["compacted"], summary["replicas_compacted"], summary["failed"]) == (2, 6, 0)
    for partition, log in yard.logs.items():
        expected, _ = model.kept(log, end=yard.end_of_closed(partition), now_ms=1_700_000_000_000, cutoff=0)
        for broker_id in (1, 2, 3):
            assert [r.offset for r in yard.records_of(broker_id, partition)] == sorted(expected)
    assert summary["keys"] == sum(d["keys"] for d in summary["details"].values()) > 0
    assert yard.leases_left() == []


def test_a_damaged_leader_stops_a_shuffle_by_name(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    path = yard.replica(1, 0).logs()[-2]
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    assert compact.main(["--topic", "t", "--max-keys", "5"]) == 1
    summary = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert (summary["compacted"], summary["failed"]) == (1, 1)
    where = f"t-0, segment {int(path.stem)} ({path})"
    assert f"pass 1 on broker 1: {where}: batch at position" in summary["details"]["t-0"]["reason"]


def test_compact_without_a_replica_keeps_every_tombstone_and_names_what_fails(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    del yard.brokers[2].replicas["t", 0]
    yard.replica(3, 0).leader_epoch = 0
    for broker_id in (1, 3):
        yard.replica(broker_id, 0).clean_offset = 40
    summary = run(compact, capsys)
    assert summary["details"]["t-0"]["tombstone_cutoff"] == 0
    assert summary["details"]["t-0"]["replicas"] == [1, 3]
    assert "unknown_partition" in summary["details"]["t-0"]["absent"]["2"]


def test_compact_waits_for_another_run_and_skips_what_stays_held(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    yard.brokers[2].held.add(("t", 1))
    summary = run(compact, capsys, "--wait-s", "0")
    assert (summary["compacted"], summary["skipped"]) == (1, 1)
    assert "lease_held" in summary["details"]["t-1"]["reason"]
    assert yard.leases_left() == []

    asked = len(yard.brokers[2].requests)
    yard.brokers[2].held_until = asked + 3
    summary = run(compact, capsys, "--wait-s", "30")
    assert summary["details"]["t-1"]["outcome"] == "compacted"


def test_a_damaged_leader_is_not_compacted_and_hurts_only_its_partition(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    path = yard.replica(1, 0).logs()[0]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    before = yard.bytes_of(2, 0)
    assert compact.main(["--topic", "t"]) == 1
    captured = capsys.readouterr()
    summary = json.loads(captured.out.strip().splitlines()[-1])
    assert (summary["compacted"], summary["failed"]) == (1, 1)
    assert "compact: pass 1: t-0 done; " in captured.err
    assert "compact: pass 2: t-1 done; 1 of 1 partitions" in captured.err
    assert str(path) in summary["details"]["t-0"]["reason"]
    assert yard.bytes_of(2, 0) == before
    assert yard.leases_left() == []


def test_audit_finds_nothing_in_sound_replicas_and_covers_the_active_segment(
    yard: Yard, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "STRAYS_AGAIN_S", 0.0)
    for broker in yard.brokers.values():
        for replica in broker.replicas.values():
            replica.config["cleanup.policy"] = "delete"
    summary = run(audit, capsys, "--report", str(tmp_path / "report"))
    assert (summary["verdict"], summary["first_findings"]) == ("ok", [])
    assert (summary["replicas"], summary["partitions"]) == (6, 2)
    assert summary["records"] == 3 * sum(len(b.records) for log in yard.logs.values() for b in log.batches)
    assert summary["compared_to"] == {f"t-{p}": log.open_from or log.end for p, log in yard.logs.items()}
    assert pq.read_table(tmp_path / "report" / "findings.parquet").num_rows == 0
    assert yard.leases_left() == []

    yard.brokers[2].strays = ["/data/2/gone-0"]
    assert audit.main([]) == 0
    captured = capsys.readouterr()
    whole = json.loads(captured.out.strip().splitlines()[-1])
    lines = [line for line in captured.err.splitlines() if " done; " in line]
    assert sorted(line.split()[1] for line in lines) == ["t-0", "t-1"]
    assert "2 of 2 partitions" in lines[-1]
    assert [(f["check"], f["replica"], f["file"]) for f in whole["first_findings"]] == [("stray", 2, "/data/2/gone-0")]


@pytest.mark.parametrize("is_small", [True, False])
def test_audit_names_what_is_wrong_where(
    yard: Yard,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_small: bool,
) -> None:
    """In the tasks that read whole partitions, and after a shuffle of the segments' rows."""
    monkeypatch.setattr(audit, "are_tasks", lambda sizes, slots: is_small)
    flipped = yard.replica(2, 1).logs()[-1]
    data = bytearray(flipped.read_bytes())
    data[-3] ^= 1
    flipped.write_bytes(data)
    short = yard.replica(3, 1).logs()[0]
    first_two = sum(b.size for b in read_back(short.read_bytes())[:2])
    short.write_bytes(
        short.read_bytes()[:first_two] + short.read_bytes()[first_two + read_back(short.read_bytes())[2].size :]
    )
    summary = run(audit, capsys, "--report", str(tmp_path / "report"), status=2)
    assert summary["verdict"] == "bad"
    found = {(f["check"], f["replica"]): f for f in pq.read_table(tmp_path / "report" / "findings.parquet").to_pylist()}
    assert found["crc", 2]["file"] == str(flipped)
    assert found["crc", 2]["position"] == len(data) - headers_of(bytes(data))[-1].size
    assert found["gap", 3]["offset"] == 6
    assert "offsets 4 to 5 are missing" in found["gap", 3]["message"]
    assert {f["offset"] for f in summary["first_findings"] if f["check"] == "replicas"} == {4}


@pytest.mark.parametrize(
    ("sizes", "are_tasks"),
    [
        ([], True),
        ([audit.SMALL_BYTES], True),
        ([audit.SMALL_BYTES + 1], False),
        ([audit.SMALL_BYTES, 1], True),
        ([TASK_BYTES, 1], True),
        ([TASK_BYTES + 1, 1], False),
    ],
)
def test_whole_partitions_are_tasks_where_none_keeps_the_others_waiting(sizes: list[int], are_tasks: bool) -> None:
    assert audit.are_tasks(sizes, 2) is are_tasks


def test_audit_of_directories_excuses_what_only_one_replica_has_cleaned(
    yard: Yard, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    left_out = yard.brokers[3].replicas.pop(("t", 1))
    run(compact, capsys)
    roots = []
    for broker_id in (1, 2, 3):
        root = yard.replica(broker_id, 0).directory.parent
        roots += ["--log-dir", f"{broker_id}={root}"]
        other = yard.brokers[broker_id].replicas.get(("t", 1), left_out)
        lines = f"0\n2\nt 0 {yard.replica(broker_id, 0).clean_offset}\nt 1 {other.clean_offset}\n"
        (root / "cleaner-offset-checkpoint").write_text(lines)
    summary = run(audit, capsys, "--cleanup-policy", "compact", *roots)
    assert summary["verdict"] == "warn"
    found = [f for f in summary["first_findings"] if f["check"] == "replicas"]
    assert [(f["level"], f["partition"], f["replica"]) for f in found] == [("warn", 1, 1), ("warn", 1, 2)]
    assert all("the next compaction makes them equal" in f["message"] for f in found)


def test_export_writes_every_committed_record_once(
    yard: Yard, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "export"
    first = run(export, capsys, "--destination", str(target))
    expected = {
        (p, r.offset, r.key, r.value)
        for p, log in yard.logs.items()
        for b in log.batches
        if not b.flags & CONTROL and log.transactions.get(b.base) not in log.aborted
        for r in b.records
        if r.offset < (log.open_from or log.end)
    }
    rows = pq.read_table(target / "data").to_pylist()
    assert {(r["partition"], r["offset"], r["key"], r["value"]) for r in rows} == expected
    assert len(rows) == len(expected) == first["rows"]

    latest: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}
    for partition, offset, key, value in sorted(expected, key=lambda row: row[1]):
        if key is not None:
            latest[partition, key] = offset, value
    table = tmp_path / "upserted"
    run(export, capsys, "--destination", str(table), "--mode", "upsert")
    upserted = {
        (r["partition"], r["key"]): (r["offset"], r["value"]) for r in pq.read_table(table / "data").to_pylist()
    }
    assert upserted == {key: row for key, row in latest.items() if row[1] is not None}

    days = tmp_path / "days"
    merged = run(
        export, capsys, "--destination", str(days), "--partition-by", "topic,date", "--merge-files", "2",
        "--value-format", "string",
    )  # fmt: skip
    assert merged["merged_files"] > 1
    paths = list((days / "data" / "topic=t").rglob("*.parquet"))
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in paths) == merged["rows"]
    assert merged["rows"] + merged["dead_letters"] == len(expected)
    assert not (target / "_staging").exists() or not any((target / "_staging").iterdir())

    second = run(export, capsys, "--destination", str(target))
    assert (second["rows"], second["files"], second["manifest_version"]) == (0, 0, 1)
    assert pq.read_table(target / "data").num_rows == len(expected)

    for broker in yard.brokers.values():
        broker.replicas["t", 0].high_watermark = None
    third = run(export, capsys, "--destination", str(target))
    assert third["manifest_version"] == 2
    assert third["offsets"]["t-0"]["end"] == yard.logs[0].end
    offsets = [(r["partition"], r["offset"]) for r in pq.read_table(target / "data").to_pylist()]
    assert len(offsets) == len(set(offsets)) == first["rows"] + third["rows"]


def test_failures_are_one_line(yard: Yard, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert export.main(["--topic", "absent", "--destination", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == "export.py: topic absent does not exist on fake"
    assert captured.out == ""
    assert compact.main([]) == 1
    assert capsys.readouterr().err == "compact.py: name the topics to compact with --topic\n"
    paths = [yard.replica(1 + partition, partition).logs()[0] for partition in (0, 1)]
    paths[0].write_bytes(damaged(paths[0].read_bytes()))
    assert export.main(["--topic", "t", "--destination", str(tmp_path / "one")]) == 1
    summary = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert summary["failed"]["t-0"].startswith(f"t-0, segment 0 ({paths[0]}): batch at position 0 (offset 0): ")
    assert (list(summary["failed"]), summary["rows"]) == (["t-0"], summary["offsets"]["t-1"]["rows"])
    assert summary["rows"] > 0
    paths[1].write_bytes(damaged(paths[1].read_bytes()))
    assert export.main(["--topic", "t", "--destination", str(tmp_path / "both")]) == 1
    captured = capsys.readouterr()
    (line,) = captured.err.strip().splitlines()[-1:]
    assert line.startswith("export.py: t-")
    assert str(paths[0]) in line or str(paths[1]) in line
    assert captured.out == ""
