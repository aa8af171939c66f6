from pathlib import Path

import pytest

from logyard.local.demo import cluster_view
from logyard.local.demo.cluster_view import Partition, View
from logyard.local.errors import LocalError


def replica(home: Path, name: str, segments: dict[int, int]) -> None:
    directory = home / name
    directory.mkdir(parents=True)
    for base, size in segments.items():
        (directory / f"{base:020d}.log").write_bytes(b"x" * size)
        (directory / f"{base:020d}.index").write_bytes(b"i" * 10)
        (directory / f"{base:020d}.log.deleted").write_bytes(b"old")


@pytest.fixture
def log_dirs(tmp_path: Path) -> dict[int, list[str]]:
    replica(tmp_path / "0", "flights-0", {0: 10, 500: 20})
    replica(tmp_path / "1", "flights-0", {0: 10, 480: 15, 700: 5})
    replica(tmp_path / "1", "flights-1", {0: 7})
    for other in ("flights-unassigned-0", "flights-0.5e0a-delete", "other-0"):
        replica(tmp_path / "1", other, {0: 100})
    return {broker: [str(tmp_path / str(broker))] for broker in range(3)}


def test_closed_segments_end_where_the_first_active_one_begins(log_dirs: dict[int, list[str]]) -> None:
    assert cluster_view.compactable_ends(cluster_view.segments(log_dirs, "flights")) == {0: 500, 1: 0}


def test_only_the_logs_own_bytes_count(log_dirs: dict[int, list[str]]) -> None:
    found = cluster_view.segments(log_dirs, "flights")
    assert sorted(found) == [(0, 0), (0, 1), (1, 1)]
    assert cluster_view.bytes_of(found) == 30 + 30 + 7
    assert [cluster_view.bytes_of(found, broker) for broker in range(3)] == [30, 37, 0]


def test_what_ails_a_cluster() -> None:
    view = View(
        frozenset({0, 1}),
        0,
        {
            ("a", 0): Partition(0, (0, 1), (1, 0)),
            ("a", 1): Partition(2, (2, 1), (2,)),
            ("b", 0): Partition(-1, (0,), (0,)),
        },
    )
    assert view.unled() == [("a", 1), ("b", 0)]
    assert view.under_replicated() == [("a", 1)]
    assert set(view.of("a")) == {0, 1}


def test_nobody_answers() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_view, "ANSWER_S", 0.2)
        with pytest.raises(LocalError, match=r"no broker of 127\.0\.0\.1:1 answers"):
            cluster_view.look({"bootstrap.servers": "127.0.0.1:1"})
