from logyard.spark_jobs.progress import EVERY_S, Progress


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
        "audit: t-1 done; 2 of 3 partitions, 20.0 of 40.0 MB (50 %), about 2 s left",
        "audit: t-0; 2 of 3 partitions, 25.0 of 40.0 MB (62 %), about 4 s left",
        "audit: t-0 done; 3 of 3 partitions, 40.0 of 40.0 MB (100 %)",
    ]
