"""Records written and read by tasks, on librdkafka's own cluster in memory."""

import json
import time
from collections.abc import Iterator
from threading import Timer
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException, AirflowSensorTimeout, AirflowSkipException
from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.hooks.records import RecordsFailed, RecordsHook
from logyard.operators.producing import ProduceToTopicOperator, as_record
from logyard.operators.sensors.records import AwaitRecordFunctionSensor, AwaitRecordSensor
from tests.support.airflow_tasks import context, run
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow


def wanted(message: Any, word: str = "yes") -> Any:
    """What sensors of these tests accept: named by its path."""
    return message.value().decode() if word in message.value().decode() else None


def test_records_are_written_and_counted(kafka: MockKafka) -> None:
    kafka.write("p1", [(None, "first")])
    records = [
        {"key": "k", "value": {"a": 1}, "headers": {"h": "x"}, "partition": 0},
        {"value": None, "key": b"k", "partition": 0},
        ("k", "text"),
    ]
    result, _ = run(ProduceToTopicOperator(task_id="p", topic="p1", records=records), context())
    assert (result["records"], result["dry_run"]) == (3, False)
    assert result["bytes"] == 1 + 8 + 1 + 1 + 4
    assert result["offsets"]["0"]["start"] == 1
    found = kafka.read("p1")
    assert (0, b"k", b'{"a": 1}', [("h", b"x")]) in found
    assert (0, b"k", None, None) in found
    assert len(found) == 4


def test_a_function_makes_the_records(kafka: MockKafka) -> None:
    kafka.write("p2", [(None, "first")])

    def make(count: int, word: str = "") -> Iterator[Any]:
        yield from ((str(n), f"{word}{n}") for n in range(count))

    operator = ProduceToTopicOperator(
        task_id="p",
        topic="p2",
        producer_function=make,
        producer_function_args=[3],
        producer_function_kwargs={"word": "w"},
        transactional=True,
    )
    assert run(operator, context())[0]["records"] == 3
    assert sum(end["end"] - end["start"] for end in run(operator, context())[0]["offsets"].values()) >= 3


def test_a_dry_run_writes_nothing(kafka: MockKafka) -> None:
    kafka.write("p3", [(None, "first")])
    operator = ProduceToTopicOperator(task_id="p", topic="p3", records='[["k", "v"]]', dry_run=True)
    assert run(operator, context())[0] == {
        "topic": "p3",
        "records": 1,
        "bytes": 2,
        "offsets": {},
        "dry_run": True,
    }
    assert len(kafka.read("p3")) == 1


def test_what_cannot_be_written_fails_the_task(kafka: MockKafka) -> None:
    with pytest.raises(ApiError) as missing:
        ProduceToTopicOperator(task_id="p", topic="no-such-topic", records=[("k", "v")]).execute(context())
    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_a_broker_has_not_heard_of_yet_is_asked_for_again(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logyard.operators.hooks.records.HEARD_S", 3.0)
    made = Timer(0.3, kafka.write, ("just-made", [(None, "first")]))
    made.start()
    result, _ = run(ProduceToTopicOperator(task_id="p", topic="just-made", records=[{"value": "second"}]), context())
    made.join()
    assert result["records"] == 1
    kafka.write("p4", [(None, "first")])
    small = {"message.max.bytes": 1000}
    with pytest.raises(AirflowFailException, match="MSG_SIZE_TOO_LARGE"):
        run(
            ProduceToTopicOperator(task_id="p", topic="p4", records=[("k", "v" * 2000)], client_options=small),
            context(),
        )
    with pytest.raises(AirflowFailException, match="either records or producer_function"):
        run(ProduceToTopicOperator(task_id="p", topic="p4"), context())


@pytest.mark.parametrize(
    "wrong",
    [
        *({"key": "k"}, {"value": 1, "other": 2}, ("k",), "text", 7),
        *({"value": 1, "partition": "one"}, {"value": 1, "timestamp_ms": "now"}),
        *({"value": object()}, ("k", {"of": {1}}), ("\ud800", 1)),
    ],
)
def test_what_is_no_record_is_refused(wrong: Any) -> None:
    with pytest.raises(BadSettings):
        as_record(wrong)


def test_a_group_reads_to_the_end_and_commits(kafka: MockKafka) -> None:
    kafka.write("c1", [(None, str(n)) for n in range(7)])
    kafka.write("c1", [(None, "other")], partition=2)
    seen: list[str] = []

    def keep(word: str, message: Any) -> str | None:
        seen.append(message.value().decode())
        return word + seen[-1] if seen[-1] == "3" else None

    def reads(**more: Any) -> dict[str, Any]:
        operator = ConsumeFromTopicOperator(
            task_id="c",
            topics=["c1"],
            group="g1",
            apply_function=keep,
            apply_function_args=["w"],
            return_apply_function_results=True,
            max_batch_size=2,
            **more,
        )
        found: dict[str, Any] = run(operator, context())[0]
        return found

    dry = reads(dry_run=True)
    assert (dry["records"], dry["committed"], dry["offsets"]["c1-0"]) == (0, False, {"start": 0, "end": 7})
    assert not seen
    assert reads(max_messages=3)["records"] == 3
    first = len(seen)
    rest = reads()
    assert (first, rest["records"], rest["records_of"], rest["committed"]) == (3, 5, {"c1": 5}, True)
    assert sorted(seen) == sorted([*"0123456", "other"])
    assert reads()["offsets"] == {}
    assert kafka.committed("g1", "c1") == 7


def test_a_group_that_has_read_more_than_there_is_fails_loudly(kafka: MockKafka) -> None:
    """A log that was cut, or a topic made anew: else the first records of the new log would never be read."""
    kafka.write("anew", [("k", "v")] * 3)
    kafka.commit("anew-readers", "anew", 10)
    for dry_run in (True, False):
        reader = ConsumeFromTopicOperator(task_id="r", topics=["anew"], group="anew-readers", dry_run=dry_run)
        with pytest.raises(RecordsFailed, match="offset 10 is committed, and the log ends at 3"):
            run(reader, context())
    assert kafka.committed("anew-readers", "anew") == 10
    kafka.commit("anew-readers", "anew", 3)
    assert run(reader, context())[0]["records"] == 0


def test_who_commits_later_is_told_which_topic_was_read(kafka: MockKafka, admin: MemoryCluster) -> None:
    kafka.write("later", [("k", "v")])
    MemoryClient(admin).create_topic(NewTopic("later", 1, 1))
    found, _ = run(
        ConsumeFromTopicOperator(task_id="r", topics=["later"], group="later", commit_cadence="never"), context()
    )
    assert found["topic_ids"] == {"later": admin.topic_ids["later"]}


@pytest.mark.parametrize("cadence", ["end_of_operator", "end_of_batch"])
def test_nothing_is_committed_for_a_topic_made_anew_while_the_function_ran(
    kafka: MockKafka, admin: MemoryCluster, cadence: str
) -> None:
    """It may have as many records as the first one had: who goes by the name would never read them."""
    topic, client = f"anew-{cadence}", MemoryClient(admin)
    kafka.write(topic, [("k", "v")] * 3)
    client.create_topic(NewTopic(topic, 1, 1))

    def replace(batch: list[Any]) -> None:
        client.delete_topic(topic)
        client.create_topic(NewTopic(topic, 1, 1))

    def read(function: Any) -> Any:
        reader = ConsumeFromTopicOperator(
            task_id="r", topics=[topic], group=topic, apply_function_batch=function, commit_cadence=cadence
        )
        return run(reader, context())[0]

    with pytest.raises(AirflowFailException, match=f"topic {topic} was made anew since its records were read"):
        read(replace)
    assert kafka.committed(topic, topic) < 0
    assert read(lambda batch: None)["committed"] is True
    assert kafka.committed(topic, topic) == 3


def test_a_function_that_fails_commits_only_what_is_done(kafka: MockKafka) -> None:
    kafka.write("c2", [(None, str(n)) for n in range(4)])

    def fail(batch: list[Any]) -> None:
        if any(message.value() == b"3" for message in batch):
            raise ValueError("three")

    def read(cadence: str) -> int:
        operator = ConsumeFromTopicOperator(
            task_id="c",
            topics="c2",
            group="g2",
            apply_function_batch=fail,
            max_batch_size=2,
            commit_cadence=cadence,
        )
        with pytest.raises(ValueError, match="three"):
            run(operator, context())
        return kafka.committed("g2", "c2")

    assert read("end_of_operator") < 0
    assert read("never") < 0
    assert 0 < read("end_of_batch") <= 3


def test_wrong_arguments_of_a_reader_are_refused(kafka: MockKafka) -> None:
    for wrong in (
        {"commit_cadence": "sometimes"},
        {"apply_function": print, "apply_function_batch": print},
        {"apply_function": "no.such.function"},
        {"group": ""},
    ):
        arguments: dict[str, Any] = {"topics": ["c2"], "group": "g", **wrong}
        with pytest.raises(AirflowFailException):
            run(ConsumeFromTopicOperator(task_id="c", **arguments), context())


def test_tokens_cannot_log_in_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "delegation_token": True}
    secured = {"conn_type": "logyard", "host": "a:1", "login": "u", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(secured))
    with pytest.raises(BadSettings, match="delegation token"):
        RecordsHook().client_options()


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_sensor_waits_for_a_record_that_is_accepted(kafka: MockKafka, admin: MemoryCluster, deferrable: bool) -> None:
    group = f"s{deferrable}"
    kafka.write("s1", [(None, "no"), (None, f"yes {group}"), (None, "yes later")])
    sensor = AwaitRecordSensor(
        task_id="s",
        topics=["s1"],
        group=group,
        apply_function=f"{__name__}.wanted",
        apply_function_kwargs={"word": group},
        deferrable=deferrable,
        poke_interval=0.1,
        timeout=20,
    )
    found, deferrals = run(sensor, context())
    assert deferrals == int(deferrable)
    assert (found["record"]["value"], found["result"]) == (f"yes {group}", f"yes {group}")
    position = found["record"]["offset"] + 1
    assert found["offsets"]["s1-0"] == position
    # The task has it, and then the group's offsets are committed: by the admin client, here of another cluster.
    assert admin.group_commits[group][TopicPartition("s1", 0)] == position


def test_a_sensor_in_a_worker_has_its_record_at_once(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a deferred task has to wait for the end of the process of its first part."""
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "5")
    kafka.write("s8", [(None, "yes")])
    begun = time.monotonic()
    run(AwaitRecordSensor(task_id="s", topics=["s8"], group="s8", poke_interval=0.1, timeout=20), context())
    assert time.monotonic() - begun < 5


def test_a_sensor_never_commits_back(kafka: MockKafka, admin: MemoryCluster) -> None:
    """While it waited, another task of its group has read on."""
    kafka.write("back", [(None, "yes")])
    kafka.write("back", [(None, "no")], partition=1)
    admin.group_commits["back"] = {TopicPartition("back", 0): 50}
    sensor = AwaitRecordSensor(
        task_id="s", topics=["back"], group="back", apply_function=f"{__name__}.wanted", poke_interval=0.1, timeout=20
    )
    found, _ = run(sensor, context())
    assert found["offsets"]["back-0"] == 1
    assert admin.group_commits["back"][TopicPartition("back", 0)] == 50
    assert TopicPartition("back", 1) in admin.group_commits["back"]


def test_a_sensor_without_a_group_begins_at_the_end_and_times_out(kafka: MockKafka) -> None:
    kafka.write("s2", [(None, "yes")])
    sensor = AwaitRecordSensor(task_id="s", topics=["s2"], deferrable=True, poke_interval=0.1, timeout=0.5)
    with pytest.raises(AirflowSensorTimeout, match="no record was accepted"):
        run(sensor, context())


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize("kind", ["soft_fail", "never_fail"])
def test_a_sensor_that_may_be_skipped_is(kafka: MockKafka, deferrable: bool, kind: str) -> None:
    kafka.write("s4", [(None, "no")])
    waits: dict[str, Any] = {"topics": ["s4"], "poke_interval": 0.1, "timeout": 0.2, "deferrable": deferrable}
    wrong: dict[str, Any] = {"apply_function": "no.such.function"}
    skips: dict[str, Any] = {kind: True}
    for fields in (waits, waits | wrong):
        with pytest.raises((AirflowSensorTimeout, AirflowFailException)):
            run(AwaitRecordSensor(task_id="s", **fields), context())
        with pytest.raises(AirflowSkipException):
            run(AwaitRecordSensor(task_id="s", **fields, **skips), context())


def test_a_first_look_that_fails_ends_a_sensor_as_a_poke_would(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.write("s5", [(None, "yes")])
    looks: list[int] = []

    def always_away(*_: object, **__: object) -> dict[str, int]:
        raise RecordsFailed("nobody answers")

    def away(*_: object, **__: object) -> dict[str, int]:
        looks.append(1)
        if len(looks) % 3:
            raise RecordsFailed("nobody answers")
        return {"s5-0": 0}

    monkeypatch.setattr("logyard.operators.sensors.records.first_offsets", away)
    waits: dict[str, Any] = {"topics": ["s5"], "poke_interval": 0.05, "timeout": 10, "deferrable": True}
    with pytest.raises(RecordsFailed):  # retried, if the task has retries left
        AwaitRecordSensor(task_id="s", soft_fail=True, **waits).execute(context())
    with pytest.raises(AirflowSkipException):
        AwaitRecordSensor(task_id="s", never_fail=True, **waits).execute(context())
    looks.clear()
    assert run(AwaitRecordSensor(task_id="s", silent_fail=True, **waits), context())[0]["record"]["value"] == "yes"
    assert len(looks) == 3
    monkeypatch.setattr("logyard.operators.sensors.records.first_offsets", always_away)
    with pytest.raises(AirflowSensorTimeout, match="nobody answers"):
        AwaitRecordSensor(task_id="s", silent_fail=True, **{**waits, "timeout": 0.2}).execute(context())


def test_a_refusal_is_not_waited_for_even_silently(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> dict[str, int]:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")

    monkeypatch.setattr("logyard.operators.sensors.records.first_offsets", refused)
    with pytest.raises(AirflowFailException):
        AwaitRecordSensor(task_id="s", topics=["t"], silent_fail=True, timeout=30).execute(context())


def test_a_function_is_called_for_each_record(kafka: MockKafka) -> None:
    kafka.write("s3", [(None, "yes 1"), (None, "no"), (None, "yes 2")])
    seen: list[str] = []

    def call(found: dict[str, Any], **ctx: Any) -> None:
        assert "ti" in ctx
        seen.append(found["result"])

    sensor = AwaitRecordFunctionSensor(
        task_id="s",
        topics=["s3"],
        group="s3",
        apply_function=f"{__name__}.wanted",
        event_triggered_function=call,
        poke_interval=0.1,
        timeout=2,
    )
    with pytest.raises(AirflowSensorTimeout):
        run(sensor, context())
    assert seen == ["yes 1", "yes 2"]


@pytest.mark.parametrize("topics", [[], "[]", ["^("]])
def test_topics_that_nothing_can_be_read_of_are_told_before_anybody_waits(kafka: MockKafka, topics: Any) -> None:
    sensor = AwaitRecordSensor(task_id="s", topics=topics, timeout=20)
    with pytest.raises(AirflowFailException, match=r"topics: (name at least one|.* is no regular expression)"):
        run(sensor, context())


def test_an_expression_that_matches_no_topic_fails_a_wait(kafka: MockKafka) -> None:
    """What it was to match may be made before the next try; this one would wait for nothing."""
    with pytest.raises(ApiError, match=r"no topic matches \^nowhere"):
        run(AwaitRecordSensor(task_id="s", topics=["^nowhere"], timeout=20), context())


def test_batches_of_no_record_are_refused(kafka: MockKafka) -> None:
    kafka.write("n", [(None, "1")])
    with pytest.raises(AirflowFailException, match="max_batch_size: expected 1 or more, found 0"):
        run(ConsumeFromTopicOperator(task_id="r", topics=["n"], group="n", max_batch_size=0), context())
