"""The rows beside Apache Kafka measure what they say: with a kcat and brokers of the tests' own."""

import signal
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks.reference import bare_replicas, catalogue, kcat, measure, rows

# As many dots as the file `records` says, where dots are asked for; its words are kept for the test.
KCAT = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >> asked
case "$*" in *"-f ."*) head -c "$(cat records)" /dev/zero | tr '\\0' . ;; esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "kcat"
    script.write_text(KCAT)
    script.chmod(0o755)
    (tmp_path / "records").write_text("60")
    monkeypatch.setattr("shutil.which", lambda _: str(script))
    return tmp_path


def cluster(directory: Path) -> Any:
    return SimpleNamespace(bootstrap="127.0.0.1:9", description={"brokers": []}, directory=directory)


def asked(fake: Path) -> list[str]:
    return (fake / "asked").read_text().splitlines()


def read(fake: Path, count: int = 60, size: int = 100, **options: bool) -> measure.Measured:
    return measure.in_turn([kcat.readings(cluster(fake), "t", count, size, "consume", **options)])[0]


def test_a_topic_is_counted_once_and_read_several_times_without_printing(fake: Path) -> None:
    found = read(fake, size=1_000_000)
    counted, *others = asked(fake)
    assert counted.endswith("-f .")
    timed, floors = others[: kcat.READS], others[kcat.READS :]
    assert len(floors) == kcat.READS
    assert all("-o 0 " in each and "-f ." not in each for each in timed)
    assert all("-o end" in each and "-f ." not in each for each in floors)
    assert found["consume MB/s"] == pytest.approx(60 / found["consume, a reading, s"])


def test_a_reader_that_misses_records_or_finds_too_many_fails_the_row(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kcat, "REPLICATED_S", 0.2)  # for so long it is asked again
    for count in (59, 61):
        with pytest.raises(AssertionError, match=f"60 instead of {count} records read"):
            read(fake, count)


def test_a_reader_that_fails_fails_the_row(fake: Path) -> None:
    (fake / "kcat").write_text("#!/bin/sh\necho 'no such topic' >&2\nexit 1\n")
    with pytest.raises(AssertionError, match="no such topic"):
        read(fake)


def test_only_what_is_committed_is_read_where_the_row_says_so(fake: Path) -> None:
    read(fake, committed=True)
    read(fake)
    levels = [each.split("isolation.level=")[1].split()[0] for each in asked(fake)]
    each = 1 + 2 * kcat.READS
    assert levels == ["read_committed"] * each + ["read_uncommitted"] * each


def test_rows_of_tls_read_by_tls(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:8", "security.protocol": "SSL", "ssl.ca.location": "/ca.pem"}
    monkeypatch.setattr(kcat, "client", lambda _, tls: settings if tls else {"bootstrap.servers": "127.0.0.1:9"})
    read(fake, tls=True)
    assert all("-b 127.0.0.1:8" in each for each in asked(fake))
    assert all("-X security.protocol=SSL -X ssl.ca.location=/ca.pem" in each for each in asked(fake))


def test_a_rate_is_that_of_the_median_reading_and_cpu_is_of_all(fake: Path) -> None:
    """Every sixth reading stands still for a moment, as a reader that asks a broker again does."""
    (fake / "kcat").write_text(
        KCAT + "n=$(wc -l < asked)\ncase \"$*\" in *'-f .'*) ;; *) [ $((n % 6)) -ne 0 ] || sleep 0.5 ;; esac\n"
    )
    found = read(fake, size=1_000_000)
    assert found["consume, a reading, s"] < 0.4


class Worked:
    """What two rows did, step by step."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def row(self, cluster: Any, steps: int = 3) -> measure.Steps:
        try:
            for step in range(steps):
                self.steps.append(f"{cluster}{step}")
                yield
        finally:
            self.steps.append(f"{cluster} ends")
        return {"MB/s": {"a": 6.0, "b": 2.0}[cluster]}


def test_rows_that_yield_work_in_turn_and_change_who_is_first() -> None:
    worked = Worked()
    ours: Any = "a"
    kafka: Any = "b"
    found = measure.compare(measure.Row("row", worked.row, rounds=1), ours, kafka)
    first = ["b0", "a0", "b1", "a1", "b2", "a2", "b ends", "a ends"]
    second = ["a0", "b0", "a1", "b1", "a2", "b2", "a ends", "b ends"]
    assert worked.steps == first + second
    assert [(each.ours, each.kafka, each.ratio) for each in found] == [(6.0, 2.0, 3.0)]


def test_rows_that_do_not_yield_work_one_after_the_other() -> None:
    done: list[Any] = []
    ours: Any = "a"
    kafka: Any = "b"
    row = measure.Row("row", lambda cluster: done.append(cluster) or {"s": 1.0}, rounds=1)
    measure.compare(row, ours, kafka)
    assert done == ["b", "a", "a", "b"]


def test_what_one_row_has_begun_is_ended_when_the_other_fails() -> None:
    worked = Worked()

    def fails() -> measure.Steps:
        yield
        raise AssertionError("no such topic")

    with pytest.raises(AssertionError, match="no such topic"):
        measure.in_turn([worked.row("a"), fails()])
    assert worked.steps == ["a0", "a1", "a ends"]


@pytest.mark.parametrize("by_tls", [False, True])
def test_the_floor_of_a_latency_is_that_of_the_same_client_with_bare_processes(
    monkeypatch: pytest.MonkeyPatch, by_tls: bool
) -> None:
    bare, ended = object(), []

    @contextmanager
    def running(directory: Path, *, by_tls: bool) -> Any:
        assert directory.is_dir()
        ended.append(by_tls)
        yield bare
        ended.append(by_tls)

    def latency(cluster: Any, *, acks: str, tls: bool) -> dict[str, float]:
        assert (acks, tls) == ("all", by_tls)
        return {"p50 ms": 0.4 if cluster is bare else 1.6}

    monkeypatch.setattr(bare_replicas, "running", running)
    monkeypatch.setattr(rows, "latency", latency)
    broker: Any = object()
    expected = {"p50 ms": 1.6, "floor: three bare processes, p50 ms": 0.4}
    assert bare_replicas.latency(broker, by_tls=by_tls) == expected
    assert ended == [by_tls, by_tls]


def test_how_soon_a_killed_process_is_gone_is_no_figure_of_a_broker() -> None:
    control = SimpleNamespace(stop_broker=lambda *_: None, start_broker=lambda _: None)
    restarted: Any = SimpleNamespace(cluster=control, isrs_full=lambda _: True)
    assert list(rows.restart(restarted, number=signal.SIGKILL)) == ["start s"]
    assert list(rows.restart(restarted, number=signal.SIGTERM)) == ["stop s", "start s"]


def test_no_two_rows_have_one_name() -> None:
    names = [row.name for row in catalogue.rows()]
    assert len(names) == len(set(names))
