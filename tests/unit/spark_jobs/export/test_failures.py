"""One partition's trouble is that partition's: the others are exported, it is named, and the run has failed."""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.broker.errors import LogyardError
from logyard.spark_jobs import cluster
from logyard.spark_jobs.export import job, options
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.segments import splits
from logyard.spark_jobs.segments.splits import Range
from tests.support.batches import TRANSACTIONAL, Rec, batch
from tests.support.here_workers import HereWorkers
from tests.support.segment_files import write_partition

TOPICS = ("airports-0", "flights-0", "flights-1", "weather-0")


class World:
    """Four partitions of 30 records in two segments, and an export of them."""

    def __init__(self, root: Path) -> None:
        self.log, self.target = root / "log", root / "export"
        for name in TOPICS:
            self.write(name)

    def write(self, name: str, count: int = 30) -> Path:
        made = [batch([Rec(n + i, b"k%d" % (n + i), name.encode()) for i in range(3)]) for n in range(0, count, 3)]
        if (self.log / name).exists():
            for file in (self.log / name).iterdir():
                file.unlink()
            (self.log / name).rmdir()
        half = len(made) // 2
        return write_partition(self.log, name, [made[:half], made[half:]])

    def file(self, name: str, base: int = 0) -> Path:
        return self.log / name / f"{base:020d}.log"

    def patch(self, name: str, position: int, data: bytes, base: int = 0) -> None:
        with self.file(name, base).open("r+b") as file:
            file.seek(position)
            file.write(data)

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        parser = argparse.ArgumentParser()
        cluster.add_arguments(parser)
        options.add_arguments(parser)
        given = ["--log-dir", str(self.log), "--destination", str(self.target), "--target-file-mib", "0", *words]
        return job.export(parser.parse_args(given), HereWorkers())

    def rows(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for file in ManifestStore(str(self.target)).live_files():
            if file["table"] == "data":
                table = pq.ParquetFile(self.target / file["path"]).read()
                for topic, partition, offset in zip(
                    *(table.column(c).to_pylist() for c in ("topic", "partition", "offset")), strict=True
                ):
                    found.setdefault(f"{topic}-{partition}", []).append(offset)
        return {name: sorted(offsets) for name, offsets in found.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def checkpoint(world: World, name: str, text: str) -> None:
    path = world.log / "replication-offset-checkpoint"
    lines = path.read_text().splitlines()
    topic, _, partition = name.rpartition("-")
    kept = [line for line in lines[2:] if not line.startswith(f"{topic} {partition} ")] + ([text] if text else [])
    path.write_text(f"0\n{len(kept)}\n" + "".join(f"{line}\n" for line in kept))


def open_transaction_damaged(world: World) -> None:
    damaged = bytearray(batch([Rec(15, b"k", b"v")], flags=TRANSACTIONAL, producer_id=3, sequence=0).encode())
    damaged[-2] ^= 1
    world.file("flights-1", 15).write_bytes(bytes(damaged))


TROUBLES: dict[str, tuple[Callable[[World], Any], str]] = {
    "a flipped byte": (lambda w: w.patch("flights-1", 70, b"\xff"), "flights-1, segment 0 .*position 0 "),
    "damaged framing": (lambda w: w.patch("flights-1", 8, bytes(4), 15), "flights-1, segment 15 .*position 0 "),
    "a torn closed segment": (lambda w: os.truncate(w.file("flights-1"), 100), "flights-1, segment 0 "),
    "a damaged batch of a transaction": (open_transaction_damaged, "flights-1, segment 15 "),
    "no high watermark": (lambda w: checkpoint(w, "flights-1", ""), "flights-1: its high watermark"),
    "a file that may not be read": (lambda w: _replace_by_directory(w.file("flights-1")), "flights-1"),
}


def _replace_by_directory(path: Path) -> None:
    """What cannot be read, whoever asks."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("name", TROUBLES)
def test_the_others_are_exported(name: str, mode: str, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    trouble, words = TROUBLES[name]
    trouble(world)
    status, summary = world.run("--mode", mode)
    assert status == 1
    assert list(summary["failed"]) == ["flights-1"]
    assert re.search(words, summary["failed"]["flights-1"]), summary["failed"]
    assert "flights-1 is given up" in capsys.readouterr().err
    whole = list(range(30))
    assert {t: o for t, o in world.rows().items() if t != "flights-1"} == dict.fromkeys(
        ["airports-0", "flights-0", "weather-0"], whole
    )
    assert summary["rows"] >= 90
    # Mended, it is taken up where it was left, and nothing comes twice.
    if world.file("flights-1").is_dir():
        world.file("flights-1").rmdir()
    world.write("flights-1")
    status, summary = world.run("--mode", mode)
    assert (status, summary["failed"]) == (0, {})
    assert world.rows() == dict.fromkeys(TOPICS, whole)


def test_what_was_committed_before_the_damage_stays(world: World) -> None:
    world.patch("flights-1", 70, b"\xff", base=15)
    status, summary = world.run("--commit-mib", "1", "--split-mib", "1")
    assert status == 1
    known = ManifestStore(str(world.target)).latest().topics["flights"].next_offsets
    assert summary["offsets"]["flights-1"]["end"] == known.get(1, 0)
    assert world.rows().get("flights-1", []) == list(range(known.get(1, 0)))


def test_several_in_trouble_are_all_named(world: World) -> None:
    world.patch("flights-1", 70, b"\xff")
    world.patch("airports-0", 70, b"\xff")
    checkpoint(world, "weather-0", "")
    status, summary = world.run()
    assert (status, sorted(summary["failed"])) == (1, ["airports-0", "flights-1", "weather-0"])
    assert world.rows() == {"flights-0": list(range(30))}


def test_where_none_is_left_the_job_fails_with_the_first(world: World) -> None:
    for name in TOPICS:
        world.patch(name, 70, b"\xff")
    with pytest.raises(LogyardError, match=r"(airports-0|flights-0|flights-1|weather-0), segment 0 .*position 0 "):
        world.run()
    assert world.rows() == {}


def test_where_none_is_left_what_was_committed_before_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MEBIBYTE", 400)
    for name in TOPICS:
        world.patch(name, 70, b"\xff", 15)
    status, summary = world.run("--commit-mib", "1", "--split-mib", "1")
    assert (status, sorted(summary["failed"])) == (1, sorted(TOPICS))
    assert world.rows() == {name: list(range(15)) for name in TOPICS}
    assert (summary["rows"], {span["end"] for span in summary["offsets"].values()}) == (60, {15})
    assert re.search("segment 15 ", summary["error"])


def test_what_was_committed_before_the_destination_failed_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "MEBIBYTE", 400)
    commit = ManifestStore.commit

    def full(store: ManifestStore, manifest: Manifest) -> None:
        if manifest.version > 3:
            raise OSError(28, "No space left on device", "data")
        commit(store, manifest)

    with monkeypatch.context() as patched:
        patched.setattr(ManifestStore, "commit", full)
        status, summary = world.run("--commit-mib", "1", "--split-mib", "1")
    assert (status, summary["error"]) == (1, "[Errno 28] No space left on device: 'data'")
    assert "what is committed stays: [Errno 28]" in capsys.readouterr().err
    there = {name: len(offsets) for name, offsets in world.rows().items()}
    assert (summary["manifest_version"], summary["versions"], summary["rows"]) == (3, 3, sum(there.values()))
    assert {name: span["end"] for name, span in summary["offsets"].items()} == {n: there.get(n, 0) for n in TOPICS}
    # Who runs only the failed topics again must not miss one that was not done.
    left = {name.rpartition("-")[0] for name in TOPICS if there.get(name, 0) < 30}
    assert summary["topics_failed"] == dict.fromkeys(left, summary["error"])
    assert {name for name, row in summary["by_topic"].items() if row["failed"]} == left
    status, summary = world.run()
    assert (status, world.rows()) == (0, {name: list(range(30)) for name in TOPICS})


def test_a_topic_made_again_is_that_topics_trouble(world: World) -> None:
    assert world.run()[0] == 0
    (world.log / "weather-0" / "partition.metadata").write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBQ")
    world.write("airports-0", 45)
    status, summary = world.run()
    assert (status, list(summary["failed"])) == (1, ["weather-0"])
    assert "weather was deleted and created again" in summary["failed"]["weather-0"]
    assert world.rows()["airports-0"] == list(range(45))


def test_partitions_that_fail_one_by_one_do_not_have_the_others_planned_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []

    def counting(span: Range, **words: Any) -> Any:
        planned.append(str(span.replica.tp))
        return plain(span, **words)

    plain = splits.plan_splits
    monkeypatch.setattr(splits, "plan_splits", counting)
    monkeypatch.setattr(job, "MEBIBYTE", 400)
    for name, base in (("airports-0", 0), ("flights-0", 15)):
        world.patch(name, 70, b"\xff", base)
    status, summary = world.run("--commit-mib", "1", "--split-mib", "1")
    assert status == 1
    assert sorted(summary["failed"]) == ["airports-0", "flights-0"]
    rows = world.rows()
    assert (rows["flights-1"], rows["weather-0"], rows["flights-0"]) == (
        list(range(30)),
        list(range(30)),
        list(range(15)),
    )
    assert sorted(planned) == list(TOPICS)


def test_a_destination_that_fails_is_nobodys_trouble(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from logyard.spark_jobs.export import files

    def full(path: str, *_: Any) -> Any:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr("logyard.spark_jobs.export.staged_files.open_parquet", full, raising=False)
    monkeypatch.setattr(files, "open_parquet", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        world.run()


def test_a_damaged_checkpoint_is_named(world: World) -> None:
    (world.log / "replication-offset-checkpoint").write_bytes(b"0\n7\nx\n")
    with pytest.raises(
        LogyardError, match=r"airports-0: its high watermark is not known \(replication-offset-checkpoint: "
    ):
        world.run()
