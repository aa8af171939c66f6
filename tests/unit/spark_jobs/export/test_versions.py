"""Versions, checkpoints and what is trimmed: whoever dies or races where, the files that live are the same."""

import json
import os
import random
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.export import versions
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.places.folder import ManifestFolder
from logyard.spark_jobs.export.places.place import NumberTaken
from logyard.spark_jobs.export.versions import Versions
from tests.support.crash_points import crash_points


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(versions, "KEPT", 12)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def row(version: int, rng: random.Random, live: list[str]) -> dict[str, Any]:
    """A version that takes some files out and adds some, one of them perhaps again."""
    removed = [path for path in live if rng.random() < 0.2]
    added = [f"data/{version}-{n}" for n in range(rng.randrange(3))] + removed[: rng.randrange(2)]
    manifest = Manifest(version, "c", f"run{version}", files=tuple({"path": p, "of": version} for p in added))
    return manifest.to_json() | {"removed": removed}


class Model:
    """The truth, from the versions themselves."""

    def __init__(self, seed: int = 1) -> None:
        self.rng, self.live, self.version = random.Random(seed), dict[str, int](), 0

    def following(self) -> dict[str, Any]:
        return row(self.version + 1, random.Random(self.rng.random()), list(self.live))

    def add(self, made: Mapping[str, Any]) -> None:
        self.version = int(made["version"])
        for path in made["removed"]:
            self.live.pop(path, None)
        self.live.update({file["path"]: file["of"] for file in made["files"]})

    def check(self, found: Versions) -> None:
        assert [(f["path"], f["of"]) for f in found.live_files()] == list(self.live.items())


def grown(directory: Path, versions: int, model: Model | None = None) -> Model:
    model, held = model or Model(), Versions(ManifestFolder(str(directory)))
    for _ in range(versions):
        made = model.following()
        held.append(made["version"], made)
        model.add(made)
        held.checkpoint()
    return model


@pytest.mark.parametrize("seed", range(5))
def test_what_lives_is_the_same_whoever_reads_it_when(seed: int, tmp_path: Path) -> None:
    model, reader = Model(seed), Versions(ManifestFolder(str(tmp_path)))
    model.check(reader)
    for _ in range(60):
        grown(tmp_path, 1, model)
        if model.rng.random() < 0.5:
            model.check(reader)
        model.check(Versions(ManifestFolder(str(tmp_path))))
    newest = reader.newest()
    assert newest is not None
    assert newest["version"] == 60


def test_a_reader_opens_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grown(tmp_path, 60)
    opened: list[str] = []
    real = ManifestFolder.read
    monkeypatch.setattr(ManifestFolder, "read", lambda files, name: opened.append(name) or real(files, name))
    reader = Versions(ManifestFolder(str(tmp_path)))
    model.check(reader)
    assert len(opened) <= 1 + 5
    model.check(reader)
    assert len(opened) <= 1 + 5, "and none twice"


def test_of_old_versions_only_the_name_stays(tmp_path: Path) -> None:
    grown(tmp_path, 60)
    names = [tmp_path / f"{n:010d}.json" for n in range(1, 61)]
    inodes = {path.stat().st_ino for path in names}
    kept = [path for path in names if "trimmed" not in json.loads(path.read_text())]
    assert len(inodes) == len(kept) + 1
    assert kept[-1] == names[-1]
    assert 12 <= len(kept) <= 12 + 2 * 5
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2
    assert not list(tmp_path.glob(".*"))


def test_a_writer_that_stood_still_finds_no_number_free(tmp_path: Path) -> None:
    late = Model()
    grown(tmp_path, 3, late)
    made = late.following()
    model = grown(tmp_path, 57, late)
    with pytest.raises(NumberTaken):
        Versions(ManifestFolder(str(tmp_path))).append(made["version"], made)
    model.check(Versions(ManifestFolder(str(tmp_path))))


class Late(ManifestFolder):
    """A place whose listing does not have one name yet, although it has later ones."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(str(directory))
        self._late = name

    def names(self) -> list[str]:
        return [name for name in super().names() if name != self._late]


@pytest.mark.parametrize("late", range(6, 9))
def test_a_version_that_a_listing_lacks_is_read_all_the_same(late: int, tmp_path: Path) -> None:
    """Else its files would count as nobody's, for a checkpoint and for a cleaning, which deletes such."""
    model = grown(tmp_path, 9)
    model.check(Versions(Late(tmp_path, f"{late:010d}.json")))


def test_a_version_that_is_gone_is_named(tmp_path: Path) -> None:
    """Somebody has deleted it, by a rule for old objects, say: what lives is not known any more."""
    grown(tmp_path, 9)
    (tmp_path / "0000000007.json").unlink()
    with pytest.raises(CorruptData, match=r"0000000007\.json.*; and no checkpoint covers it"):
        Versions(ManifestFolder(str(tmp_path))).live_files()


def test_who_knows_no_checkpoints_fails_and_does_not_take_a_part_for_all(tmp_path: Path) -> None:
    """The loop of earlier versions, over all names that are numbers."""
    grown(tmp_path, 60)
    names = [n for n in os.listdir(tmp_path) if n.endswith(".json") and n.removesuffix(".json").isdigit()]
    assert len(names) == 60
    rows = [json.loads((tmp_path / name).read_text()) for name in sorted(names)]
    with pytest.raises(CorruptData):
        [Manifest.from_json(row) for row in rows]
    Manifest.from_json(json.loads((tmp_path / max(names)).read_text()))


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    model = grown(tmp_path, 60)
    *_, newer = sorted(tmp_path.glob("checkpoint-*"))
    newer.write_text("{")
    model.check(Versions(ManifestFolder(str(tmp_path))))
    grown(tmp_path, 12, model)
    model.check(Versions(ManifestFolder(str(tmp_path))))
    for path in tmp_path.glob("checkpoint-*"):
        path.write_text("[]")
    with pytest.raises(CorruptData, match=r"trimmed: .*; and no checkpoint covers it"):
        Versions(ManifestFolder(str(tmp_path))).live_files()


def test_dead_at_any_point_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, work = tmp_path / "base", tmp_path / "work"
    model = grown(base, 24)
    held = Versions(ManifestFolder(str(base)))
    for _ in range(5):
        made = model.following()
        held.append(made["version"], made)
        model.add(made)

    def begin() -> None:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)

    def reset() -> None:
        model.check(Versions(ManifestFolder(str(work))))
        later = Model(2)
        later.live, later.version = dict(model.live), model.version
        grown(work, 11, later)
        later.check(Versions(ManifestFolder(str(work))))
        begin()

    begin()
    points = crash_points(lambda: Versions(ManifestFolder(str(work))).checkpoint(), monkeypatch, reset, 1)
    model.check(Versions(ManifestFolder(str(work))))
    assert points > 20


def test_a_version_whose_answer_was_lost_is_this_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of NFS that hears nothing asks again, and is told of the link that it has made, and of the name that it
    has removed."""
    link, unlink = os.link, os.unlink

    def linked_twice(source: str, target: str) -> None:
        for _ in range(2):
            link(source, target)

    def unlinked_twice(path: str) -> None:
        for _ in range(2):
            unlink(path)

    monkeypatch.setattr(os, "link", linked_twice)
    monkeypatch.setattr(os, "unlink", unlinked_twice)
    files = ManifestFolder(str(tmp_path))
    files.create("0000000001.json", {"run": "mine"})
    with pytest.raises(NumberTaken):
        files.create("0000000001.json", {"run": "another's"})
    assert json.loads(files.read("0000000001.json")) == {"run": "mine"}
    assert os.listdir(tmp_path) == ["0000000001.json"]


def test_a_full_disk_is_not_filled_further_by_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    files = ManifestFolder(str(tmp_path))
    for write in (files.create, files.replace):
        with pytest.raises(OSError, match="No space left"):
            write("0000000001.json", {"version": 1})
    assert not os.listdir(tmp_path)


def test_many_names_for_one_file_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def few(source: str, target: str) -> None:
        if os.stat(source).st_nlink > 7:
            raise OSError(31, "Too many links")
        real(source, target)

    monkeypatch.setattr(os, "link", few)
    model = grown(tmp_path, 60)
    model.check(Versions(ManifestFolder(str(tmp_path))))
    assert not list(tmp_path.glob(".*"))


def test_another_run_replaces_the_small_file_while_it_gets_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """link(2) fails with ENOENT where the file that it found is replaced before it has the new name."""
    real, unlucky = os.link, [True] * 6

    def raced(source: str, target: str) -> None:
        if source.endswith("trimmed") and os.path.exists(source) and unlucky:
            unlucky.pop()
            raise FileNotFoundError(2, "No such file or directory", source, None, target)
        real(source, target)

    monkeypatch.setattr(os, "link", raced)
    model = grown(tmp_path, 60)
    model.check(Versions(ManifestFolder(str(tmp_path))))
    assert not unlucky
    assert not list(tmp_path.glob(".*"))


def test_readers_beside_writers_that_tend_all_at_once(tmp_path: Path) -> None:
    model = grown(tmp_path, 3)
    history_of: dict[int, list[tuple[str, int]]] = {3: list(model.live.items())}
    over, trouble = threading.Event(), list[BaseException]()

    def guarded(work: Any) -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:
            trouble.append(error)

    def read() -> None:
        reader = Versions(ManifestFolder(str(tmp_path)))
        found = [(f["path"], f["of"]) for f in reader.live_files()]
        assert found == history_of[reader.live_at]

    threads = [threading.Thread(target=guarded, args=(read,)) for _ in range(3)]
    threads += [
        threading.Thread(target=guarded, args=(lambda: Versions(ManifestFolder(str(tmp_path))).checkpoint(),))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for _ in range(150):
        made = model.following()
        model.add(made)
        history_of[model.version] = list(model.live.items())
        Versions(ManifestFolder(str(tmp_path))).append(made["version"], made)
    over.set()
    for thread in threads:
        thread.join(60)
    assert trouble == []
    model.check(Versions(ManifestFolder(str(tmp_path))))


def test_an_export_goes_on_where_no_checkpoint_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.export_runs import Flights, pairs

    def full(_store: ManifestStore) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(ManifestStore, "checkpoint", full)
    flights = Flights(tmp_path)
    flights.grow(pairs(8))
    assert flights.run()["rows"] == 8
