"""The manifests of an export: one of two writers is fenced, a crash is finished by the next run."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.export.manifest import Manifest, TopicOffsets
from logyard.spark_jobs.export.manifest_store import Fenced, ManifestStore


def staged(store: ManifestStore, run: str, name: str, content: str) -> dict[str, Any]:
    path = Path(store.staging(run)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"content": [content]}), path)
    size = path.stat().st_size
    return {"staged": f"_staging/{run}/{name}", "path": f"data/t/0/{name}", "rows": 1, "bytes": size}


def advance(manifest: Manifest, run: str, offset: int, files: list[dict[str, Any]], topic_id: str = "one") -> Manifest:
    return manifest.advanced(cluster_id="c", run_id=run, topics={"t": TopicOffsets(topic_id, {0: offset})}, files=files)


def test_a_crash_between_commit_and_moves_is_finished_by_the_next_run(tmp_path: Path) -> None:
    store = ManifestStore(str(tmp_path))
    assert store.latest() == Manifest()
    first = advance(Manifest(), "r1", 5, [staged(store, "r1", "a.parquet", "A"), staged(store, "r1", "b.parquet", "B")])
    store.commit(first)
    (tmp_path / "data/t/0").mkdir(parents=True)
    (tmp_path / "_staging/r1/a.parquet").rename(tmp_path / "data/t/0/a.parquet")

    again = ManifestStore(str(tmp_path))
    assert again.latest() == first
    assert again.is_unpublished(again.latest())
    again.finish_moves(again.latest())
    assert not again.is_unpublished(again.latest())
    assert sorted(p.name for p in (tmp_path / "data/t/0").iterdir()) == ["a.parquet", "b.parquet"]
    assert not (tmp_path / "_staging/r1").exists()
    again.finish_moves(again.latest())


def test_of_two_writers_one_is_fenced(tmp_path: Path) -> None:
    store = ManifestStore(str(tmp_path))
    base = store.latest()
    store.commit(advance(base, "r1", 5, []))
    with pytest.raises(Fenced, match="another export"):
        store.commit(advance(base, "r2", 9, []))
    assert store.latest().topics["t"].next_offsets == {0: 5}
    store.commit(advance(store.latest(), "r3", 9, []))
    assert [store.latest().version, store.latest().topics["t"].next_offsets[0]] == [2, 9]


def test_offsets_merge_by_maximum_and_start_over_with_a_new_topic() -> None:
    manifest = advance(Manifest(), "r1", 5, [])
    other = manifest.advanced(cluster_id="c", run_id="r", topics={"t": TopicOffsets("one", {0: 3, 1: 7})}, files=[])
    assert other.topics["t"].next_offsets == {0: 5, 1: 7}
    assert advance(manifest, "r2", 2, [], topic_id="two").topics["t"].next_offsets == {0: 2}
    assert Manifest.from_json(other.to_json()) == other
