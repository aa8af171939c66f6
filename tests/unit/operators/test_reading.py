"""How a group's records are read, on librdkafka's own cluster in memory."""

import time
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.operators import reading
from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.hooks.records import asked
from tests.support.airflow_tasks import context, run
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow


def test_the_time_that_a_function_takes_is_no_silence_of_the_brokers(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing was fetched at the moment at which it ended, the task failed: "nothing came for 60 s"."""
    kafka.write("slow", [(None, f"{n}") for n in range(3)])
    done: list[int] = []

    def at_a_bad_moment(what: str, ask: Any, *args: Any, **kwargs: Any) -> Any:
        if what == "reading" and done and done[-1] > 0:
            done.append(0)
            return []  # as while the leader is another one, or its answer is under way
        return asked(what, ask, *args, **kwargs)

    def process(batch: list[Any]) -> None:
        time.sleep(0.6)
        done.append(len(batch))

    monkeypatch.setattr(reading, "asked", at_a_bad_moment)
    arguments: dict[str, Any] = {"max_batch_size": 1, "poll_timeout": 0.5, "apply_function_batch": process}
    result, _ = run(ConsumeFromTopicOperator(task_id="c", topics=["slow"], group="slow", **arguments), context())
    assert result["records"] == 3
