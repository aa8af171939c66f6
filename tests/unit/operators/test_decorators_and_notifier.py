"""The decorators of functions that read and make records, and the notifier."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG, Context

from logyard.admin.errors import ApiError, ErrorCode
from logyard.operators.airflow_names import mask_secret
from logyard.operators.decorators import consume_task, produce_task
from logyard.operators.notifier import TopicNotifier, about
from logyard.operators.provider_info import get_provider_info
from tests.support.airflow_tasks import context, run
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow


def test_a_function_makes_and_another_one_reads(kafka: MockKafka) -> None:
    kafka.write("d", [(None, "first")])
    seen: list[Any] = []
    with DAG("d"):

        @produce_task(topic="d")  # type: ignore[untyped-decorator]
        def make(count: int) -> Iterator[Any]:
            yield from ((f"k{n}", {"n": n}) for n in range(count))

        @consume_task(topics=["d"], group="d")  # type: ignore[untyped-decorator]
        def store(messages: Any, word: str = "") -> None:
            seen.extend((word, message.value()) for message in messages)

        written = make(3).operator
        read = store(word="w").operator
    assert run(written, context())[0]["records"] == 3
    assert run(read, context())[0]["records"] == 4
    assert sorted(seen) == sorted([("w", b"first"), *(("w", json.dumps({"n": n}).encode()) for n in range(3))])


def test_a_reader_takes_its_arguments_as_airflows_own_decorators_do(kafka: MockKafka) -> None:
    kafka.write("dp", [(None, "first")])
    seen: list[Any] = []
    with DAG("dp"):

        @consume_task(topics=["dp"], group="dp", commit_cadence="never")  # type: ignore[untyped-decorator]
        def store(messages: Any, word: str, count: int = 1) -> None:
            seen.append((word, count, len(messages)))

        @consume_task(topics=["dp"], group="dp", commit_cadence="never")  # type: ignore[untyped-decorator]
        def store_all(*batch_and_words: Any) -> None:
            seen.append((len(batch_and_words[0]), *batch_and_words[1:]))

        tasks = [store("{{ 1 + 1 }}").operator, store("w", 2).operator, store("w", count=3).operator]
        tasks.append(store_all("x", "y").operator)
        with pytest.raises(TypeError, match="multiple values for argument 'messages'"):
            store("w", messages=[])
        with pytest.raises(TypeError, match="missing a required argument: 'word'"):
            store()
    for task in tasks:
        task.render_template_fields(told := context())
        run(task, told)
    assert seen == [("2", 1, 1), ("w", 2, 1), ("w", 3, 1), (1, "x", "y")]


def test_functions_get_the_context_as_those_of_airflows_own_decorator_do(kafka: MockKafka) -> None:
    kafka.write("dc", [(None, "first")])
    seen: list[Any] = []
    with DAG("dc"):

        @produce_task(topic="dc")  # type: ignore[untyped-decorator]
        def make(word: str, ti: Any, params: Any = None) -> Iterator[Any]:
            seen.append((ti.run_id, params))
            yield word, word

        @consume_task(topics=["dc"], group="dc")  # type: ignore[untyped-decorator]
        def store(messages: Any, word: str, **rest: Any) -> None:
            seen.extend((word, sorted(rest)) for _ in messages)  # which may come in one batch or in two

        written = make("w").operator
        read = store(word="r").operator
    run(written, context())
    run(read, context())
    assert seen == [("run", None), *[("r", ["task_state_store", "ti"])] * 2]


def test_airflow_is_told_of_them() -> None:
    import importlib

    info = get_provider_info()
    assert {one["name"] for one in info["task-decorators"]} == {"logyard_consume", "logyard_produce"}
    for path in (*(one["class-name"] for one in info["task-decorators"]), *info["notifications"]):
        module, name = path.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), name)


def test_a_failure_is_a_record(kafka: MockKafka) -> None:
    kafka.write("events", [(None, "first")])
    ti = SimpleNamespace(dag_id="etl", run_id="r", task_id="load", map_index=-1, try_number=2, state="failed")
    ctx: Any = {"ti": ti, "exception": ValueError("no room"), "dag": None}
    TopicNotifier(topic="events", headers={"from": "airflow"})(ctx)
    (found,) = [one for one in kafka.read("events") if one[2] != b"first"]
    assert (found[1], found[3]) == (b"etl", [("from", b"airflow")])
    assert json.loads(found[2]) == {
        "dag_id": "etl",
        "run_id": "r",
        "task_id": "load",
        "map_index": -1,
        "try_number": 2,
        "state": "failed",
        "exception": "no room",
    }


def test_a_notifier_makes_no_topic(kafka: MockKafka) -> None:
    with pytest.raises(ApiError) as refused:
        TopicNotifier(topic="misspelt").notify(Context())
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_notifier_says_what_it_is_told(kafka: MockKafka) -> None:
    kafka.write("said", [(None, "first")])
    TopicNotifier(topic="{{ where }}", value="{{ word }}!", key="k").__call__({"where": "said", "word": "hello"})
    assert any(one[1:3] == (b"k", b"hello!") for one in kafka.read("said"))


def test_a_runs_context_is_enough() -> None:
    run_ = SimpleNamespace(dag_id="d", run_id="r", logical_date=None)
    assert about({"dag_run": run_, "reason": "timed_out"}) == {"dag_id": "d", "run_id": "r", "reason": "timed_out"}
    assert about({}) == {}


def test_what_airflow_masks_in_logs_is_masked_in_the_record() -> None:
    """Who reads the topic may see no connection; a text is masked before it is cut."""
    mask_secret("pass-of-a-database")
    found = about({"exception": ValueError("x" * 1990 + " pass-of-a-database"), "reason": "by pass-of-a-database"})
    assert found == {"exception": "x" * 1990 + " ***", "reason": "by ***"}
