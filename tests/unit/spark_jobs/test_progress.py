import pytest

from logyard.spark_jobs.progress import EVERY_S, FILES, Progress
from tests.support.steps import Counted


def test_a_line_as_a_partition_is_done_and_now_and_then() -> None:
    lines: list[str] = []
    now = [100.0]
    progress = Progress("audit", {"t-0": 30_000_000, "t-1": 10_000_000, "t-2": 0}, lines.append, lambda: now[0])
    now[0] += 1
    progress.add("t-0", 10_000_000)
    assert lines == [], "not for every piece"
    now[0] += 1
    progress.add("t-1", 10_000_000)
    now[0] += EVERY_S
    progress.add("t-0", 5_000_000)
    progress.add("t-1", 10_000_000)  # a task that ran twice
    now[0] += 1
    progress.add("t-0", 15_000_000)
    progress.add("t-0", 15_000_000)
    assert lines == [
        "audit: t-1 done; 2 of 3 partitions, 20.0 of 40.0 MB (50 %), 10.0 MB/s, about 2 s left",
        "audit: t-0; 2 of 3 partitions, 25.0 of 40.0 MB (62 %), 3.6 MB/s, about 4 s left",
        "audit: t-0 done; 3 of 3 partitions, 40.0 of 40.0 MB (100 %), 5.0 MB/s",
    ]


def test_files_are_told_now_and_then_and_at_the_end() -> None:
    lines: list[str] = []
    now = [100.0]
    progress = Progress("export", dict.fromkeys("abcd", 100_000_000), lines.append, lambda: now[0], FILES)
    now[0] += 1
    progress.add("a", 100_000_000)
    assert lines == [], "not for every file"
    now[0] += EVERY_S - 1
    progress.add("b", 100_000_000)
    now[0] += 1
    progress.add("c", 100_000_000)
    now[0] += 1
    progress.add("d", 100_000_000)
    progress.add("d", 100_000_000)  # a task that ran twice
    assert lines == [
        "export: 2 of 4 files, 200.0 of 400.0 MB (50 %), 40.0 MB/s, about 5 s left",
        "export: 4 of 4 files, 400.0 of 400.0 MB (100 %), 57.1 MB/s",
    ]


def test_a_line_costs_the_same_however_many_partitions_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Counted, "uses", 0)
    progress = Progress("audit", {f"t-{n}": Counted(1_000_000) for n in range(300)}, lines.append, lambda: 100.0)
    for n in range(300):
        progress.add(f"t-{n}", 1_000_000)
    assert len(lines) == 300
    assert lines[-1].startswith("audit: t-299 done; 300 of 300 partitions, 300.0 of 300.0 MB (100 %)")
    assert Counted.uses < 10 * 300
