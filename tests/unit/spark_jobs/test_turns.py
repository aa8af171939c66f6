"""Topics take turns: each fails alone, some run side by side, and a Spark that is gone ends the rest in one line."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from logyard.spark_jobs import executors, session
from logyard.spark_jobs.errors import JobFailed, SparkGone
from logyard.spark_jobs.turns import failed_words, take_turns


def fails(topic: str) -> tuple[str, str]:
    if topic == "absent":
        raise JobFailed("topic absent does not exist")
    if topic == "odd":
        raise ZeroDivisionError("division by zero\nand more")
    return topic.upper(), "one partition is damaged" if topic == "half" else ""


def test_a_topic_fails_alone_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    turns = take_turns("job", ["a", "absent", "half", "odd", "b", "a"], fails)
    assert turns.parts == ["A", "HALF", "B"]
    assert turns.failed == {
        "absent": "topic absent does not exist",
        "half": "one partition is damaged",
        "odd": "ZeroDivisionError: division by zero",
    }
    rows = turns.rows(lambda part: {"part": part})
    assert list(rows) == ["a", "absent", "half", "odd", "b"]
    assert rows["half"] == {"failed": "one partition is damaged", "seconds": rows["half"]["seconds"], "part": "HALF"}
    assert "part" not in rows["absent"]
    assert rows["b"]["failed"] is None
    said = capsys.readouterr().err
    assert "Traceback" in said, "what is no failure of ours is shown whole"
    assert said.splitlines()[-1] == "job: 3 of 5 topics failed: absent, half, odd"
    assert "job: absent failed: topic absent does not exist (" in said
    assert "(5 of 5 topics, " in said


def test_the_failure_of_the_only_topic_is_that_of_the_job() -> None:
    with pytest.raises(JobFailed, match="does not exist"):
        take_turns("job", ["absent"], fails)
    assert take_turns("job", ["half"], fails).failed == {"half": "one partition is damaged"}
    assert take_turns("job", [], fails).parts == []


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_topics_have_their_turn_at_once(at_once: int) -> None:
    meeting, most, running = threading.Barrier(at_once), 0, 0
    lock = threading.Lock()

    def work(topic: str) -> tuple[str, str]:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait(timeout=10)
        with lock:
            running -= 1
        return topic, ""

    topics = [f"t{number}" for number in range(at_once * 4)]
    assert take_turns("job", topics, work, at_once).parts == topics
    assert most == at_once


def test_after_spark_is_gone_no_topic_begins(capsys: pytest.CaptureFixture[str]) -> None:
    begun = []

    def work(topic: str) -> tuple[str, str]:
        begun.append(topic)
        if topic == "b":
            raise SparkGone("Spark has ended")
        return topic, ""

    turns = take_turns("job", ["a", "b", "c", "d"], work, at_once=1)
    assert begun == ["a", "b"]
    assert turns.failed == dict.fromkeys(["b", "c", "d"], "Spark has ended")
    many = {f"t{number}": "no" for number in range(7)}
    assert failed_words(many, 1200) == "7 of 1,200 topics failed: t0, t1, t2, t3, t4 and 2 more"


class Context:
    """Stands where Spark's context would be."""

    def __init__(self) -> None:
        self.stopped = False
        self._jsc: Any = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.stopped))

    def stop(self) -> None:
        self._jsc = None


def test_spark_starts_once_and_says_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    context = Context()
    monkeypatch.setattr(session, "start", lambda *given: started.append(given) or context)
    spark = session.SparkStart("app", {"a": "b"})
    assert started == [], "nobody has work yet"
    turns = take_turns("job", [f"t{n}" for n in range(8)], lambda topic: (spark.context(), ""), at_once=8)
    assert (turns.parts, started) == ([context] * 8, [("app", {"a": "b"}, executors.NEEDS)])
    context.stopped = True
    with pytest.raises(SparkGone, match="has ended"):
        spark.context()
    context.stop()
    with pytest.raises(SparkGone, match="has ended"):
        spark.context()


def test_a_start_that_failed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        started.append(1)
        raise JobFailed("executors lack numba")

    started: list[int] = []
    monkeypatch.setattr(session, "start", start)
    spark = session.SparkStart("app")
    for _ in range(2):
        with pytest.raises(SparkGone, match="executors lack numba"):
            spark.context()
    assert started == [1]
