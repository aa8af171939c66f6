"""How a group's records are read, on librdkafka's own cluster in memory."""

import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.operators import reading
from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.hooks.records import asked
from tests.support.airflow_tasks import context, run
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
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


@pytest.mark.parametrize(("topic", "name"), [("named", "named"), ("by-expression", "^by-ex.*")])
def test_what_one_broker_has_not_heard_of_is_read(
    kafka: MockKafka,
    admin: MemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    topic: str,
    name: str,
) -> None:
    for partition in range(4):
        kafka.write(topic, [(None, "x")], partition)

    def heard(consumer: Any, topics: list[str], timeout_s: float) -> list[Any]:
        return [TopicPartition(topic, 0)]

    def consumed(group: str) -> int:
        reader = ConsumeFromTopicOperator(task_id="c", topics=[name], group=f"{topic}-{group}")
        found: int = run(reader, context())[0]["records"]
        return found

    monkeypatch.setattr("logyard.operators.consuming.partitions_of", heard)
    MemoryClient(admin).create_topic(NewTopic("another", 4, 1))
    assert consumed("of-one-broker") == 1
    MemoryClient(admin).create_topic(NewTopic(topic, 4, 1))
    assert consumed("of-the-controller") == 4
    admin.hung = {1}
    assert consumed("of-one-broker-again") == 1
    assert "read is what one broker knows of" in "".join(capsys.readouterr())
