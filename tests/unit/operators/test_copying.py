"""Records copied from topic to topic, on librdkafka's own cluster in memory."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.contents.masks import bared, fields_of, read_rules
from logyard.operators.contents.shown import shown_headers
from logyard.operators.copying import CopyRecordsOperator, as_written
from logyard.operators.hooks.records import RecordsFailed
from logyard.operators.producing import as_record
from logyard.operators.reading import Reading
from logyard.operators.selecting import Selection
from logyard.operators.writing import Ended, counted
from tests.support.airflow_tasks import context, run
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def shared() -> Iterator[MockKafka]:
    with MockKafka() as made:
        made.write("source", [(f"k{n}", f"value {n}") for n in range(20)])
        made.write("source", [(None, "other")], partition=2)
        made.write("source", [("gone", None)], partition=2)
        yield made


def copy(kafka: MockKafka, to_topic: str, **fields: Any) -> tuple[dict[str, Any], list[Any]]:
    """The result, and what is in the topic afterwards without its first record."""
    kafka.write(to_topic, [(None, "first")])
    arguments: dict[str, Any] = {"topic": "source", "wait_timeout_s": 20, **fields}
    result, _ = run(CopyRecordsOperator(task_id="c", to_topic=to_topic, **arguments), context())
    return result, [one for one in kafka.read(to_topic) if one[2] != b"first"]


def values(found: list[Any]) -> list[str]:
    return sorted(value.decode() if value is not None else "null" for _, _, value, _ in found)


def test_everything_is_copied_with_keys_and_nulls(kafka: MockKafka) -> None:
    result, found = copy(kafka, "all")
    assert (result["records"], result["looked_at"], result["dry_run"]) == (22, 22, False)
    assert result["read"] == {"0": {"start": 0, "end": 20}, "2": {"start": 0, "end": 2}}
    assert sum(one["end"] - one["start"] for one in result["offsets"].values()) >= 22
    assert values(found) == sorted([f"value {n}" for n in range(20)] + ["other", "null"])
    assert {key for _, key, value, _ in found if value is None} == {b"gone"}


def test_a_partition_that_one_broker_has_not_heard_of_is_copied(
    kafka: MockKafka, admin: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def heard(consumer: Any, topics: list[str], timeout_s: float) -> list[Any]:
        return [TopicPartition(topics[0], 0)]

    monkeypatch.setattr("logyard.operators.selecting.partitions_of", heard)
    assert copy(kafka, "of-one-broker")[0]["records"] == 20
    MemoryClient(admin).create_topic(NewTopic("source", 4, 1))
    assert copy(kafka, "of-the-controller")[0]["records"] == 22
    admin.hung = {1}
    assert copy(kafka, "of-one-broker-again")[0]["records"] == 20
    assert "topic source has the partitions that one broker knows" in "".join(capsys.readouterr())


def test_a_record_is_copied_whole(kafka: MockKafka) -> None:
    headers = [("trace", b"\x00\xff"), ("trace", b"2"), ("empty", None)]
    kafka.write("whole", [(None, "here")])
    kafka.put("whole", key=b"\x00k", value=b"\xff", headers=headers, timestamp=1_700_000_000_123, partition=3)
    _, found = copy(kafka, "whole-copy", topic="whole", partitions="[3]", keep_partitions=True)
    assert found == [(3, b"\x00k", b"\xff", headers)]
    assert kafka.times("whole-copy", 3) == [1_700_000_000_123]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"partitions": [0], "start": 5, "end": "8"}, ["value 5", "value 6", "value 7"]),
        ({"partitions": "0", "start": "18"}, ["value 18", "value 19"]),
        ({"start": "newest", "limit": 2, "partitions": [0]}, ["value 18", "value 19"]),
        ({"start": "newest", "limit": "1", "text": "VALUE 3"}, ["value 3"]),
        ({"start": "earliest", "limit": 2, "key": "k1", "partitions": [0]}, ["value 1", "value 10"]),
        ({"key": "gone"}, ["null"]),
        ({"text": "nothing like it"}, []),
        ({"start": 500}, []),
    ],
)
def test_what_is_meant_is_copied(kafka: MockKafka, fields: dict[str, Any], wanted: list[str]) -> None:
    result, found = copy(kafka, f"meant-{abs(hash(str(fields)))}", **fields)
    assert (values(found), result["records"]) == (wanted, len(wanted))


def test_a_dry_run_counts(kafka: MockKafka) -> None:
    result, found = copy(kafka, "dry", text="value 1", dry_run="True")
    assert (result["records"], result["offsets"], found) == (11, {}, [])


def test_a_dry_run_keeps_nothing_of_what_it_counts() -> None:
    """A topic may have a hundred million records."""
    value = b"x" * 1000
    tracemalloc.start()
    try:
        found = counted("t", ({"key": b"k", "value": value} for _ in range(50_000)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found["records"], found["bytes"]) == (50_000, 50_050_000)
    assert peak < 100_000


@pytest.mark.parametrize("transactional", [True, False])
def test_a_copy_whose_reading_fails_is_no_success(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, transactional: bool
) -> None:
    batches = Reading.batches

    def deleted(self: Reading, *arguments: Any) -> Iterator[Any]:
        yield next(batches(self, *arguments))
        raise RecordsFailed("source-0: it was deleted")

    with monkeypatch.context() as patched:
        patched.setattr(Reading, "batches", deleted)
        with pytest.raises(RecordsFailed, match="deleted"):
            copy(kafka, f"half-{transactional}", transactional=transactional)


def test_records_that_vanish_between_two_readings_fail_it(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, readings = Reading.batches, []

    def shorter(self: Reading, *arguments: Any) -> Iterator[Any]:
        readings.append(self)
        for batch in batches(self, *arguments):
            yield batch if len(readings) == 1 else batch[1:]

    with monkeypatch.context() as patched:
        patched.setattr(Reading, "batches", shorter)
        with pytest.raises(RecordsFailed, match="deleted meanwhile"):
            copy(kafka, "vanished", start="newest", limit=3, partitions=[0])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": "same"}, "into itself"),
        ({"start": "newest"}, "limit"),
        ({"start": "sometime"}, "earliest, newest, an offset or a time"),
        ({"end": "newest"}, "latest, an offset or a time"),
        ({"limit": 0}, "1 to 100,000"),
        ({"limit": 100_001}, "1 to 100,000"),
        ({"limit": "many"}, "integer"),
    ],
)
def test_what_makes_no_sense_is_refused(kafka: MockKafka, fields: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"topic": "source", **fields}
    with pytest.raises(AirflowFailException, match=text):
        run(CopyRecordsOperator(task_id="c", to_topic="same", **arguments), context())


def test_topics_and_partitions_must_be_there(kafka: MockKafka) -> None:
    for fields in ({"to_topic": "no-such-topic"}, {"topic": "no-such-topic"}, {"partitions": [77]}):
        arguments: dict[str, Any] = {"topic": "source", "to_topic": "there", **fields}
        kafka.write("there", [(None, "first")])
        with pytest.raises(Exception, match=r"no-such-topic|no partition 77"):
            run(CopyRecordsOperator(task_id="c", **arguments), context())


MASKS = '[{"topics": "sour.*", "fields": ["card.number"], "unless": ["Admin"]}%s]'


def test_what_is_hidden_stays_hidden_in_a_copy(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", MASKS % "")
    with pytest.raises(AirflowFailException, match=r"card.number: hidden in source"):
        copy(kafka, "bare")
    assert copied_none(kafka, "bare")
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", "no JSON")
    with pytest.raises(AirflowFailException, match="page_record_masks"):
        copy(kafka, "bare")
    covered = MASKS % ', {"topics": "covered", "fields": ["number"]}'
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", covered)
    assert copy(kafka, "covered")[0]["records"] == 22
    # Plain text under a mask is hidden as a whole: a search finds nothing of it.
    assert copy(kafka, "covered", text="value 1")[0]["records"] == 0


def copied_none(kafka: MockKafka, topic: str) -> bool:
    return [value for _, _, value, _ in kafka.read(topic)] == [b"first"]


@pytest.mark.parametrize(
    ("other", "bare"),
    [
        ([], ["card.number", "email"]),
        ([{"topics": "b", "fields": ["*"]}], []),
        ([{"topics": "b", "fields": ["number", "email"]}], []),
        ([{"topics": "b", "fields": ["*"], "unless": ["Op"]}], ["card.number", "email"]),
        ([{"topics": "b", "fields": ["*"], "unless": ["Admin"]}], []),
        ([{"topics": "b", "fields": ["card.number.x", "email"]}], ["card.number"]),
        ([{"topics": "c", "fields": ["*"]}], ["card.number", "email"]),
    ],
)
def test_a_copy_shows_nobody_more(other: list[Any], bare: list[str]) -> None:
    rule = {"topics": "a", "fields": ["card.number", "email"], "unless": ["admin"]}
    rules = read_rules(json.dumps([rule, *other]))
    assert bared(rules, "a", "b") == bare
    assert bared(rules, "b", "z") == sorted({f.lower() for one in other if one["topics"] == "b" for f in one["fields"]})


def test_a_selection_is_checked() -> None:
    assert Selection("t", start="2026-01-31T12:00:00Z", end="7").limit is None
    with pytest.raises(BadSettings):
        Selection("t", start="")


@pytest.mark.parametrize(
    ("header", "value"),
    [("card.number", b"4111"), ("Card", b'{"number": "4111"}'), ("x.card", b'[{"number": "4111"}]')],
)
def test_a_header_is_hidden_in_a_copy_where_its_source_hides_it(header: str, value: bytes) -> None:
    """A mask that covers another one covers its headers too: their names are found as those of fields are."""
    rules = read_rules('[{"topics": "a", "fields": ["card.number"]}, {"topics": "b", "fields": ["number"]}]')
    assert bared(rules, "a", "b") == []
    for topic in ("a", "b"):
        [(_, shown)] = shown_headers([(header, value)], fields_of(rules, topic, []))
        assert shown is not None
        assert "4111" not in shown.text, topic
    [(_, shown)] = shown_headers([("number_of_cards", b"4111")], fields_of(rules, "b", []))
    assert shown is not None
    assert shown.text == "4111"


def test_a_record_of_the_first_moment_does_not_become_one_of_now(kafka: MockKafka) -> None:
    """librdkafka takes the time 0 for "now"; some producers write it where they know none."""
    message = SimpleNamespace(key=lambda: b"k", value=lambda: b"v", headers=lambda: None, timestamp=lambda: (1, 0))
    for number, made in enumerate(
        (as_written(message, keep_partition=False), as_record({"value": "v", "timestamp_ms": 0}))
    ):
        kafka.put(f"first-{number}", **{**made, "partition": 0})
        assert kafka.times(f"first-{number}", 0) == [1]


class Sent:
    """A producer that notes what it is asked for, and acknowledges everything."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_commit: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        def ask(*_: Any, **more: Any) -> int:
            self.asked.append(name)
            if name == "commit_transaction" and self.at_commit is not None:
                self.at_commit()
            if name == "produce":
                more["on_delivery"](None, SimpleNamespace(key=bytes, value=bytes, offset=int, partition=int))
            return 0

        return ask


@pytest.mark.parametrize("transactional", [True, False])
def test_a_task_that_airflow_ends_leaves_no_transaction_open(transactional: bool) -> None:
    """Airflow's handler of the signal calls `on_kill` wherever the task is, and 5 s later the process is killed."""
    producer, operator = Sent(), CopyRecordsOperator(task_id="c", topic="a", to_topic="b")
    operator.on_kill()  # before anything is written

    def records() -> Iterator[dict[str, Any]]:
        yield {"value": b"1"}
        operator.on_kill()
        yield {"value": b"2"}

    with pytest.raises(Ended), operator.writing(producer, "b", transactional=transactional) as writer:
        writer.write(records())
    assert writer.delivered.records == 1
    assert [name for name in producer.asked if name.endswith("transaction")] == (
        ["begin_transaction", "abort_transaction"] if transactional else []
    )
    operator.on_kill()  # as after a task's time-out: nothing is open any more


def test_a_task_that_is_ended_at_its_commit_commits() -> None:
    producer, operator = Sent(), CopyRecordsOperator(task_id="c", topic="a", to_topic="b")
    producer.at_commit = operator.on_kill
    with operator.writing(producer, "b", transactional=True) as writer:
        writer.write([{"value": b"1"}])
    assert producer.asked[-1] == "commit_transaction"
