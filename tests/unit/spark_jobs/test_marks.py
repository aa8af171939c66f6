import threading
from pathlib import Path

from logyard.spark_jobs.marks import MarkProgress, line, mark


def test_a_line_says_how_far_how_fast_and_how_long() -> None:
    assert line("export", 3, 12, 100_000_000, 400_000_000, 0.5) == (
        "export: 3 of 12 files, 100.0 of 400.0 MB, 200.0 MB/s, about 2 s left"
    )
    assert line("export", 0, 12, 0, 400_000_000, 3.0) == "export: 0 of 12 files, 0.0 of 400.0 MB"
    assert line("merge", 2, 2, 5_000_000, 5_000_000, 1.0) == "merge: 2 of 2 files, 5.0 of 5.0 MB, 5.0 MB/s"


def test_marks_are_counted_as_they_come_and_at_the_end(tmp_path: Path) -> None:
    said: list[str] = []
    heard = threading.Event()

    def tell(text: str) -> None:
        said.append(text)
        heard.set()

    place = str(tmp_path / "marks")
    with MarkProgress("export", place, {"a": 1_000_000, "b": 3_000_000}, tell, interval_s=0.001):
        assert heard.wait(10)
        assert said[0] == "export: 0 of 2 files, 0.0 of 4.0 MB"
        mark(place, "a")
        mark(place, "another's")
        mark(place, "b")
    assert said[-1].startswith("export: 2 of 2 files, 4.0 of 4.0 MB, ")
