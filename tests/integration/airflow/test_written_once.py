"""Tasks whose commit is not answered, on real brokers: what they write is there once after the next try."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

pytest.importorskip("airflow.sdk")

from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.copying import CopyRecordsOperator
from logyard.operators.hooks.records import ProducerFenced, RecordsFailed, RecordsHook
from logyard.operators.producing import ProduceToTopicOperator
from logyard.operators.topics import DeleteTopicOperator
from logyard.operators.transaction_outcomes import transaction_options
from tests.support.airflow_tasks import Store, context, run
from tests.support.real_cluster import RealCluster
from tests.support.transactional import END_S

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

TIMED_OUT = -185  # librdkafka's own: its name is private in Python
Commit = Callable[[Any, float], None]


def loses_the_answer(producer: Any, timeout: float) -> None:
    producer.commit_transaction(timeout)
    raise KafkaException(KafkaError(TIMED_OUT))


def does_not_arrive(producer: Any, timeout: float) -> None:
    raise KafkaException(KafkaError(TIMED_OUT))


class _Producer:
    """A real producer whose commit is done in another way."""

    def __init__(self, producer: Any, commit: Commit) -> None:
        self._producer, self._commit = producer, commit

    def commit_transaction(self, timeout: float) -> None:
        self._commit(self._producer, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


@pytest.fixture(autouse=True)
def connection(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"conn_type": "logyard", "host": cluster.bootstrap}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(fields))


class Task:
    """One task of a run, with its state between tries; the producers of its tries live on, as those of workers that
    were cut off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, operator: Any, run_id: str) -> None:
        self._patch, self._operator, self._run_id, self._store = monkeypatch, operator, run_id, Store()
        self.producers: list[Any] = []

    def attempt(self, commit: Commit | None = None, **ti: Any) -> Any:
        made = RecordsHook.producer

        def producer(hook: RecordsHook, options: Any = None) -> Any:
            self.producers.append(made(hook, options))
            return self.producers[-1] if commit is None else _Producer(self.producers[-1], commit)

        ctx = context(self._store, run_id=self._run_id)
        vars(ctx["ti"]).update(ti)
        with self._patch.context() as patched:
            patched.setattr(RecordsHook, "producer", producer)
            return run(self._operator, ctx)[0]


def committed(cluster: RealCluster, topic: str, partitions: int = 3) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "r", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: list[bytes] = []
    ended = 0
    while ended < partitions:
        for message in consumer.consume(1000, timeout=END_S):
            if message.error() is not None:
                ended += 1
            else:
                found.append(message.value())
    consumer.close()
    return sorted(found)


def produces(topic: str) -> ProduceToTopicOperator:
    records = [{"value": f"{n}", "partition": n % 2} for n in range(6)]
    return ProduceToTopicOperator(task_id="p", topic=topic, records=records, transactional=True, wait_timeout_s=60)


WRITTEN = [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("commit", [loses_the_answer, does_not_arrive])
def test_records_are_there_once(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch, commit: Commit) -> None:
    cluster.create(topic := f"once-{commit.__name__}")
    task = Task(monkeypatch, produces(topic), topic)
    with pytest.raises(RecordsFailed):
        task.attempt(commit)
    result = task.attempt(try_number=2)
    assert committed(cluster, topic) == WRITTEN
    assert result["records"] == 6
    first = 0 if commit is loses_the_answer else 4  # three records and the marker of what was aborted
    assert result["offsets"] == {p: {"start": first, "end": first + 3} for p in ("0", "1")}
    assert task.attempt(try_number=3) == result
    assert committed(cluster, topic) == WRITTEN
    task.attempt(try_number=4, max_tries=3)  # it was cleared after it had succeeded
    assert committed(cluster, topic) == sorted(WRITTEN * 2)


def test_a_topic_that_was_made_anew_has_not_the_records(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have written at their offsets since."""
    cluster.create("once-anew")
    task = Task(monkeypatch, produces("once-anew"), "once-anew")
    with pytest.raises(RecordsFailed):
        task.attempt(loses_the_answer)
    run(DeleteTopicOperator(task_id="d", topic="once-anew"), context())
    cluster.create_again("once-anew")
    others = [b"other %d" % n for n in range(10)]
    writer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n, value in enumerate(others):
        writer.produce("once-anew", value, partition=n % 2)
    assert writer.flush(30) == 0
    assert task.attempt(try_number=2)["offsets"] == {p: {"start": 5, "end": 8} for p in ("0", "1")}
    assert committed(cluster, "once-anew") == sorted(WRITTEN + others)


def test_a_copy_is_there_once(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("once-from")
    cluster.create("once-to")
    writer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n in range(6):
        writer.produce("once-from", b"%d" % n, partition=n % 2)
    assert writer.flush(30) == 0
    operator = CopyRecordsOperator(task_id="c", topic="once-from", to_topic="once-to", wait_timeout_s=60)
    task = Task(monkeypatch, operator, "once-copy")
    with pytest.raises(RecordsFailed):
        task.attempt(loses_the_answer)
    result = task.attempt(try_number=2, max_tries=1)  # it was cleared after it had failed
    assert (result["topic"], result["to_topic"], result["records"], result["looked_at"]) == (
        "once-from",
        "once-to",
        6,
        6,
    )
    assert committed(cluster, "once-to") == WRITTEN


def test_a_try_that_lives_on_cannot_commit_later(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("once-late")
    task = Task(monkeypatch, produces("once-late"), "once-late")
    with pytest.raises(RecordsFailed):
        task.attempt(does_not_arrive)
    task.attempt(try_number=2)
    with pytest.raises(KafkaException):
        task.producers[0].commit_transaction(30)
    assert committed(cluster, "once-late") == WRITTEN


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_another_airflow_with_the_same_names_is_told(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its task of the same names has the same transactional id, and begins before, between or after the records."""
    cluster.create(topic := f"once-two-{moment}")

    def other() -> None:
        options = transaction_options(context(run_id=topic), 60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **options})
        producer.init_transactions(30)

    def records() -> Iterator[dict[str, Any]]:
        for at in ("before", "between", "after"):
            if at == moment:
                if at != "before":
                    task.producers[0].flush(30)
                other()
            yield {"value": at, "partition": 0}

    operator = ProduceToTopicOperator(
        task_id="p", topic=topic, producer_function=records, transactional=True, wait_timeout_s=60
    )
    task = Task(monkeypatch, operator, topic)
    with pytest.raises(ProducerFenced, match=r"no try of this task .* transactional_id_prefix"):
        task.attempt()
    assert committed(cluster, topic) == []


def test_another_open_transaction_is_waited_for(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees committed records behind it: they must not be taken for aborted ones."""
    cluster.create("once-open")
    other = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "once-other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce("once-open", b"other", partition=0)
    assert other.flush(30) == 0
    operator = produces("once-open")
    task = Task(monkeypatch, operator, "once-open")
    with pytest.raises(RecordsFailed):
        task.attempt(loses_the_answer)
    operator.wait_timeout_s = 3
    with pytest.raises(RecordsFailed, match="another transaction is open below"):
        task.attempt(try_number=2)
    operator.wait_timeout_s = 60
    other.abort_transaction(30)
    assert task.attempt(try_number=3)["records"] == 6
    assert committed(cluster, "once-open") == WRITTEN


def test_what_is_deleted_by_then_is_not_written_again(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("once-gone")
    task = Task(monkeypatch, produces("once-gone"), "once-gone")
    with pytest.raises(RecordsFailed):
        task.attempt(loses_the_answer)
    gone = [TopicPartition("once-gone", p, -1) for p in range(2)]
    admin = cluster.admin()  # kept: without it nobody waits for the answers
    for future in admin.delete_records(gone).values():
        future.result(30)
    with pytest.raises(AirflowFailException, match="its records are gone"):
        task.attempt(try_number=2)
    assert committed(cluster, "once-gone") == []
