"""Triggers that wait for records, in one triggerer: what holds one up holds up no other."""

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from confluent_kafka import KafkaError, KafkaException

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators.hooks.records import RecordsHook, library
from logyard.operators.reading import first_of_new, first_offsets
from logyard.operators.sensors.records import AwaitRecordSensor
from logyard.operators.triggers.base import DONE, FAILED
from logyard.operators.triggers.records import AwaitRecordTrigger
from tests.support.airflow_tasks import context, remade, run
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow
TRIGGERS = 40  # more than the threads that asyncio has for all


class BlockedConsumer:
    """Of a cluster that does not answer, until it is `released`."""

    def __init__(self, released: threading.Event) -> None:
        self.released, self.asked, self.closed = released, threading.Event(), threading.Event()

    def assign(self, partitions: Any) -> None:
        pass

    def list_topics(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(cluster_id="c")

    def consume(self, count: int, seconds: float) -> list[Any]:
        self.asked.set()
        assert self.released.wait(30)
        return []

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BlockedConsumer]]:
    made: list[BlockedConsumer] = []
    released = threading.Event()

    def consumer(*_: object) -> BlockedConsumer:
        made.append(BlockedConsumer(released))
        return made[-1]

    async def settings(_: object) -> None: ...

    monkeypatch.setattr(RecordsHook, "consumer", consumer)
    monkeypatch.setattr(RecordsHook, "asettings", settings)
    yield made
    released.set()


async def waited(trigger: AwaitRecordTrigger) -> None:
    async for _ in trigger.run():
        return


async def test_clusters_that_do_not_answer_leave_the_triggerers_threads_to_others(
    consumers: list[BlockedConsumer],
) -> None:
    fields: dict[str, Any] = {"logyard_conn_id": "c", "offsets": {"t-0": 0}}
    deadline_ms = int(time.time() * 1000) + 60_000
    waits = [
        asyncio.ensure_future(waited(AwaitRecordTrigger(**fields, deadline_ms=deadline_ms))) for _ in range(TRIGGERS)
    ]
    async with asyncio.timeout(20):
        while sum(consumer.asked.is_set() for consumer in consumers) < TRIGGERS:
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(lambda: "served") == "served"
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    consumers[0].released.set()
    async with asyncio.timeout(20):
        while not all(consumer.closed.is_set() for consumer in consumers):
            await asyncio.sleep(0.01)


class SilentConsumer:
    """Of a topic to which nothing comes."""

    def __init__(self, settings: Any) -> None:
        self.settings, self.closed = settings, threading.Event()
        self.assigned: list[int] = []

    def assign(self, partitions: Any) -> None:
        self.assigned = [partition.offset for partition in partitions]

    def list_topics(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(cluster_id="c")

    def consume(self, count: int, seconds: float) -> list[Any]:
        return [Message(self.settings)] if self.settings == "second" else []

    def close(self) -> None:
        self.closed.set()


class Message:
    """A record that names the settings it was read with."""

    def __init__(self, settings: str) -> None:
        self._value = settings.encode()

    def error(self) -> None: ...

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def key(self) -> None: ...

    def value(self) -> bytes:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


async def first_event(monkeypatch: pytest.MonkeyPatch, settings: Any, consumer: Any) -> Any:
    """Wait for a record, by a connection that is read anew at each look; `settings` and `consumer` are the hook's."""
    monkeypatch.setattr(RecordsHook, "consumer", consumer)
    monkeypatch.setattr(RecordsHook, "asettings", settings)
    monkeypatch.setattr("logyard.operators.triggers.records.REREAD_S", 0.0)
    deadline_ms = int(time.time() * 1000) + 60_000
    trigger = AwaitRecordTrigger(logyard_conn_id="c", offsets={"t-0": 5}, poll_interval_s=0.01, deadline_ms=deadline_ms)
    async with asyncio.timeout(30):
        return await anext(aiter(trigger.run()))


async def all_closed(made: Sequence[SilentConsumer]) -> None:
    async with asyncio.timeout(20):
        while not all(one.closed.is_set() for one in made):
            await asyncio.sleep(0.01)


async def test_a_connection_that_is_edited_during_the_wait_is_the_one_that_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At first the secrets backend is away, later it is for a moment."""
    answers: list[Any] = [OSError("away"), "first", OSError("away"), "first", "second"]
    made: list[SilentConsumer] = []
    read: list[Any] = []

    async def settings(_: RecordsHook) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        read.append(answer)
        return answer

    def consumer(*_: object) -> SilentConsumer:
        made.append(SilentConsumer(read[-1]))
        return made[-1]

    event = await first_event(monkeypatch, settings, consumer)
    assert event.payload["values"]["record"]["value"] == "second"
    assert [(one.settings, one.assigned) for one in made] == [("first", [5]), ("second", [5])]
    await all_closed(made)


async def test_a_connection_that_is_edited_into_one_of_no_use_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its author sees the mistake, and mends it."""
    answers = ["first", "misspelt", "misspelt", "second"]
    read: list[str] = []
    made: list[SilentConsumer] = []

    async def settings(_: RecordsHook) -> str:
        read.append(answers.pop(0) if len(answers) > 1 else answers[0])
        return read[-1]

    def consumer(*_: object) -> SilentConsumer:
        if read[-1] == "misspelt":
            raise BadSettings("connection c: there is no such file")
        made.append(SilentConsumer(read[-1]))
        return made[-1]

    event = await first_event(monkeypatch, settings, consumer)
    assert (event.payload["status"], event.payload["values"]["record"]["value"]) == (DONE, "second")
    await all_closed(made)


class Elsewhere(SilentConsumer):
    """Its first settings are of cluster `c`, its second of another one, which does not answer at once."""

    silent = 2

    def list_topics(self, *_: Any, **__: Any) -> Any:
        if self.settings == "second" and self.silent:
            self.silent -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(cluster_id={"first": "c", "second": "d"}[self.settings])


@pytest.mark.parametrize(("known", "settings"), [("", ["first", "second"]), ("c", ["second"])])
async def test_offsets_of_one_cluster_are_not_read_in_another(
    monkeypatch: pytest.MonkeyPatch, known: str, settings: list[str]
) -> None:
    """The connection is edited during the wait, or while the task was on its way to the triggerer."""
    made: list[Elsewhere] = []
    left = list(settings)  # a test that runs again has the same list

    async def read(_: RecordsHook) -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    def consumer(*_: object) -> Elsewhere:
        made.append(Elsewhere(left[0] if made or known else "first"))
        return made[-1]

    monkeypatch.setattr(RecordsHook, "consumer", consumer)
    monkeypatch.setattr(RecordsHook, "asettings", read)
    monkeypatch.setattr("logyard.operators.triggers.records.REREAD_S", 0.0)
    fields: dict[str, Any] = {"cluster_id": known, "poll_interval_s": 0.01}
    fields["deadline_ms"] = int(time.time() * 1000) + 60_000
    trigger = remade(AwaitRecordTrigger(logyard_conn_id="c", offsets={"t-0": 5}, **fields))
    async with asyncio.timeout(30):
        event = await anext(aiter(trigger.run()))
    assert event.payload["status"] == FAILED
    assert "led to cluster c when this wait began, and leads to d now" in event.payload["message"]


def test_a_commit_that_nobody_tells_is_not_taken_for_none() -> None:
    """The sensor would find a record again that its group has read long ago."""
    refused = library().KafkaError(library().KafkaError.TOPIC_AUTHORIZATION_FAILED)
    view = SimpleNamespace(error=None, partitions={0: None})
    consumer = SimpleNamespace(
        list_topics=lambda *_, **__: SimpleNamespace(topics={"t": view}),
        committed=lambda *_, **__: [SimpleNamespace(topic="t", partition=0, offset=-1001, error=refused)],
        get_watermark_offsets=lambda *_, **__: (0, 10),
    )
    with pytest.raises(ApiError, match="committed offset of t-0: TOPIC_AUTHORIZATION_FAILED"):
        first_offsets(consumer, ["t"], has_group=True)
    assert first_offsets(consumer, ["t"], has_group=False) == {"t-0": 10}


def wanted(message: Any) -> bool:
    """What the sensor of the next test accepts: named by its path."""
    return bool(message.value() == b"yes")


@pytest.mark.parametrize("deferrable", [False, True])
def test_partitions_that_a_topic_gets_meanwhile_are_read(
    kafka: MockKafka, admin: MemoryCluster, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    """Or those that the broker, which was asked at the start, had not heard of."""
    topic = f"wider-{uuid.uuid4()}"  # a test that runs again finds none of its records
    kafka.write(topic, [(None, "no")])
    kafka.write(topic, [(None, "no"), (None, "yes")], partition=3)
    heard = {f"{topic}-{partition}": 0 for partition in range(3)}
    monkeypatch.setattr("logyard.operators.sensors.records.first_offsets", lambda *_, **__: heard)
    monkeypatch.setattr("logyard.operators.triggers.records.PARTITIONS_S", 0.1)
    fields: dict[str, Any] = {"group": topic, "apply_function": f"{__name__}.wanted", "timeout": 10}
    sensor = AwaitRecordSensor(task_id="s", topics=[topic], deferrable=deferrable, poke_interval=0.1, **fields)
    found, _ = run(sensor, context())
    assert (found["record"]["partition"], found["record"]["offset"]) == (3, 1)
    # Partition 0 is read or not by then: brokers answer for their partitions in no order.
    assert found["offsets"].keys() == {f"{topic}-{partition}" for partition in range(4)}
    assert found["offsets"][f"{topic}-3"] == 2
    assert admin.group_commits[topic][TopicPartition(topic, 3)] == 2


@pytest.mark.parametrize("deferrable", [False, True])
def test_topics_that_are_made_meanwhile_are_read_where_an_expression_means_them(
    kafka: MockKafka, admin: MemoryCluster, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    prefix = f"wild-{uuid.uuid4()}-"
    kafka.write(f"{prefix}first", [(None, "no")])
    kafka.write(f"other-{prefix}", [(None, "yes")])
    heard = {f"{prefix}first-{partition}": 0 for partition in range(4)}
    kafka.write(f"{prefix}later", [(None, "no"), (None, "yes")], partition=2)
    monkeypatch.setattr("logyard.operators.sensors.records.first_offsets", lambda *_, **__: heard)
    monkeypatch.setattr("logyard.operators.triggers.records.PARTITIONS_S", 0.1)
    fields: dict[str, Any] = {"group": prefix, "apply_function": f"{__name__}.wanted", "timeout": 10}
    sensor = AwaitRecordSensor(task_id="s", topics=[f"^{prefix}"], deferrable=deferrable, poke_interval=0.1, **fields)
    found, _ = run(sensor, context())
    assert (found["record"]["topic"], found["record"]["partition"]) == (f"{prefix}later", 2)
    assert admin.group_commits[prefix][TopicPartition(f"{prefix}later", 2)] == 2


async def test_a_wait_outlives_what_retention_deletes(
    kafka: MockKafka, admin: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A triggerer that is started again begins where the wait began: perhaps days ago, and its records are gone."""
    topic = f"old-{uuid.uuid4()}"
    for _ in range(8):  # librdkafka's cluster keeps five megabytes
        kafka.write(topic, [(None, "x" * 900_000)])
    kafka.write(topic, [(None, "yes")])
    fields: dict[str, Any] = {"apply_function": f"{__name__}.wanted", "deadline_ms": int(time.time() * 1000) + 20_000}
    begun = {f"{topic}-0": 0, f"{topic}-1": 0}
    trigger = remade(AwaitRecordTrigger(logyard_conn_id="logyard_default", offsets=begun, **fields))
    async with asyncio.timeout(30):
        event = await anext(aiter(trigger.run()))
    assert (event.payload["status"], event.payload["message"]) == (DONE, "")
    assert event.payload["values"]["record"]["offset"] == 8
    assert "records from 0 to" in caplog.text


async def test_offsets_that_a_log_never_had_end_the_wait(kafka: MockKafka, admin: MemoryCluster) -> None:
    """The log lost records, or the topic was made anew: who waits on would miss what is written there."""
    topic = f"short-{uuid.uuid4()}"
    kafka.write(topic, [(None, "no")])
    fields: dict[str, Any] = {"deadline_ms": int(time.time() * 1000) + 20_000}
    trigger = remade(AwaitRecordTrigger(logyard_conn_id="logyard_default", offsets={f"{topic}-0": 50}, **fields))
    async with asyncio.timeout(30):
        event = await anext(aiter(trigger.run()))
    assert event.payload["status"] == FAILED
    assert f"{topic}-0: " in event.payload["message"]


def test_a_new_topic_whose_leader_is_away_hides_no_other() -> None:
    views = {name: SimpleNamespace(partitions={0: None, 1: None}) for name in ("a", "b", "c", "known")}

    def log(tp: Any, timeout: float) -> tuple[int, int] | None:
        return None if tp.topic == "b" else (3, 9)

    consumer = SimpleNamespace(list_topics=lambda *_, **__: SimpleNamespace(topics=views), get_watermark_offsets=log)
    assert first_of_new(consumer, {"known-0": 0, "known-1": 0}, 1, ["^[a-c]"]) == dict.fromkeys(
        ("a-0", "a-1", "c-0", "c-1"), 3
    )


def test_a_partition_that_one_broker_has_not_heard_of_is_read_from_its_commit(
    kafka: MockKafka, admin: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found a minute later, it was read from its first record: the group had read that long ago."""
    topic = f"heard-{uuid.uuid4()}"
    kafka.write(topic, [(None, "no")])
    kafka.write(topic, [(None, "yes"), (None, "no"), (None, "yes")], partition=3)
    kafka.commit(topic, topic, 1, partition=3)
    MemoryClient(admin).create_topic(NewTopic(topic, assignment=dict.fromkeys(range(4), (1,))))
    heard = [library().TopicPartition(topic, p) for p in range(3)]
    monkeypatch.setattr("logyard.operators.reading.partitions_of", lambda *_: heard)
    monkeypatch.setattr("logyard.operators.triggers.records.PARTITIONS_S", 0.1)
    fields: dict[str, Any] = {"group": topic, "apply_function": f"{__name__}.wanted", "timeout": 10}
    found, _ = run(AwaitRecordSensor(task_id="s", topics=[topic], poke_interval=0.1, **fields), context())
    assert (found["record"]["partition"], found["record"]["offset"]) == (3, 2)


def test_new_partitions_whose_leader_is_away_are_asked_for_again() -> None:
    views = {
        "t": SimpleNamespace(partitions=dict.fromkeys(range(5))),
        "u": SimpleNamespace(partitions={0: None, 1: None}),
    }
    away = {4}

    def log(tp: Any, timeout: float) -> tuple[int, int] | None:
        return None if tp.partition in away else (tp.partition * 10, 100)

    consumer = SimpleNamespace(list_topics=lambda *_, **__: SimpleNamespace(topics=views), get_watermark_offsets=log)
    known = {"t-0": 5, "t-2": 5, "u-1": 0, "gone-0": 7}
    assert first_of_new(consumer, known, 1) == {"t-3": 30}
    away.clear()
    assert first_of_new(consumer, known, 1) == {"t-3": 30, "t-4": 40}
