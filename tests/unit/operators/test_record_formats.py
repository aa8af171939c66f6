"""Functions of a DAG get decoded keys and values; a record that cannot be decoded fails the task, or is told."""

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import fastavro
import msgspec
import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG

from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.contents import formats as made_formats
from logyard.operators.contents.schemas.problems import RegistryAway
from logyard.operators.decorators import consume_task
from logyard.operators.hooks.records import RecordsHook
from tests.support.airflow_tasks import CONNECTION, context, run, use
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka
from tests.support.schema_registry import Served, framed, registry

pytestmark = pytest.mark.airflow

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "seal", "type": "bytes"}],
}
PROTO = 'syntax = "proto3"; message Line { int64 item_id = 1; string name = 2; }'
SCHEMAS: dict[int, dict[str, Any]] = {
    1: {"schema": json.dumps(ORDER)},
    2: {"schema": PROTO, "schemaType": "PROTOBUF"},
    3: {"schema": '{"type": "object"}', "schemaType": "JSON"},
    4: {"schema": '{"type": "array", "items": "null"}'},
}
LOOPS = framed(4, b"\x80\x80\x80\x80\x80\x80\x80\x80\x40\x00")  # 2^61 nulls, which take no bytes


@pytest.fixture
def served() -> Iterator[Served]:
    with registry(SCHEMAS) as made:
        yield made


@pytest.fixture
def kafka(shared: MockKafka, served: Served, monkeypatch: pytest.MonkeyPatch) -> MockKafka:
    # Else topic ids are asked for at brokers in memory, which leave that without an answer for five seconds.
    use(monkeypatch, MemoryCluster({1: None}))
    _connect(monkeypatch, shared, schema_registry_url=served.url)
    return shared


def _connect(monkeypatch: pytest.MonkeyPatch, kafka: MockKafka, **extra: Any) -> None:
    connection = {**CONNECTION, "host": kafka.bootstrap, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))


def _avro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": number, "seal": b"\x01\xff"})
    return framed(1, out.getvalue())


def _read(topic: str, **arguments: Any) -> tuple[dict[str, Any], list[Any]]:
    """The result, and (key, value) of what a function got, in the order of the partition."""
    seen: list[Any] = []
    operator = ConsumeFromTopicOperator(
        task_id="read",
        topics=[topic],
        group=topic,
        apply_function=lambda message: seen.append((message.key(), message.value())),
        **arguments,
    )
    return run(operator, context())[0], seen


def test_a_registry_s_records_are_decoded_of_every_kind(kafka: MockKafka, served: Served) -> None:
    for value in (_avro(2**60), framed(2, b"\x00\x08\x07\x12\x01x"), framed(3, b'{"a": [1.5]}'), None):
        kafka.put("f1", key="k", value=value, partition=0)
    result, seen = _read("f1", key_format="text", value_format="registry")
    assert seen == [
        ("k", {"id": 2**60, "seal": "01 ff"}),
        ("k", {"item_id": "7", "name": "x"}),
        ("k", {"a": [1.5]}),
        ("k", None),
    ]
    assert (result["records"], result["undecoded"], result["committed"]) == (4, 0, True)
    assert sorted(served.asked) == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/3"]


@pytest.mark.parametrize(
    ("form", "data", "content"),
    [
        ("bytes", b"\xff", b"\xff"),
        ("text", "Ä".encode(), "Ä"),
        ("json", b'{"a": null}', {"a": None}),
        ("messagepack", msgspec.msgpack.encode({"a": b"\x00"}), {"a": b"\x00"}),
    ],
)
def test_keys_and_values_have_formats_of_their_own(kafka: MockKafka, form: str, data: bytes, content: Any) -> None:
    kafka.put(f"f2-{form}", key=data, value=b"\x00v", partition=0)
    kafka.put(f"f2-{form}", value=data, partition=0)
    kafka.put(f"f2-{form}", key=data, value=data, partition=0)
    assert _read(f"f2-{form}", key_format=form, max_messages=1)[1] == [(content, b"\x00v")]
    assert _read(f"f2-{form}", value_format=form)[1] == [(None, content), (data, content)]


@pytest.mark.parametrize(
    ("form", "data", "why"),
    [
        ("text", b"\xff", "it is no UTF-8"),
        ("json", b"{", "it is no JSON"),
        ("json", b"[" * 200_000, "it is nested too deep"),
        ("messagepack", b"\xc1", "it is no MessagePack"),
        ("messagepack", b"\x91" * 200_000, "it is nested too deep"),
        ("registry", b"plain", "it does not begin as a schema registry's serializers write"),
        ("registry", framed(99, b"x"), "schema 99 is not there"),
        ("registry", framed(1, b"\x80"), "it does not fit its Avro schema"),
    ],
)
def test_what_cannot_be_decoded_fails_the_task_for_good(kafka: MockKafka, form: str, data: bytes, why: str) -> None:
    topic = f"f3-{form}-{len(data)}-{data[-1:].hex()}"
    kafka.put(topic, value=data, partition=0)
    with pytest.raises(AirflowFailException, match=f"{topic}-0, offset 0: value: {why}"):
        _read(topic, value_format=form)
    assert kafka.committed(topic, topic) < 0


def test_what_cannot_be_decoded_is_left_out_or_left_as_it_is(kafka: MockKafka) -> None:
    for value in (b"1", b"{", b"3"):
        kafka.put("f4", key=b"k", value=value, partition=0)
    dry, nothing = _read("f4", value_format="json", dry_run=True)
    assert (dry["records"], nothing) == (0, [])
    kept, seen = _read("f4", key_format="text", value_format="json", on_undecoded="keep", commit_cadence="never")
    assert seen == [("k", 1), (b"k", b"{"), ("k", 3)]  # not half of a record
    left, seen = _read("f4", value_format="json", on_undecoded="skip")
    assert seen == [(b"k", 1), (b"k", 3)]
    assert (kept["undecoded"], left["undecoded"], left["records"]) == (1, 1, 3)
    assert kafka.committed("f4", "f4") == 3


def test_a_record_that_ends_the_decoder_is_one_that_cannot_be_decoded(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_formats, "ANSWER_S", 5.0)
    for value in (_avro(1), LOOPS, _avro(2)):
        kafka.put("f5", value=value, partition=0)
    began = time.monotonic()
    result, seen = _read("f5", value_format="registry", on_undecoded="skip")
    assert [value["id"] for _, value in seen] == [1, 2]
    assert result["undecoded"] == 1
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("what", ["fail", "skip", "keep"])
def test_a_registry_that_is_away_is_no_fault_of_a_record(
    kafka: MockKafka, served: Served, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The task fails, may be tried again, and skips nothing."""
    kafka.put(f"f6-{what}", value=_avro(1), partition=0)
    _connect(monkeypatch, kafka, schema_registry_url="http://127.0.0.1:1")
    with pytest.raises(RegistryAway, match=f"f6-{what}-0, offset 0: value: the registry does not answer"):
        _read(f"f6-{what}", value_format="registry", on_undecoded=what)
    assert kafka.committed(f"f6-{what}", f"f6-{what}") < 0
    _connect(monkeypatch, kafka, schema_registry_url=served.url)
    assert _read(f"f6-{what}", value_format="registry", on_undecoded=what)[1] == [(None, {"id": 1, "seal": "01 ff"})]


def test_wrong_formats_are_told_before_anything_is_read(
    shared: MockKafka, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ({"key_format": "avro"}, {"value_format": "auto"}, {"on_undecoded": "ignore"}):
        with pytest.raises(AirflowFailException, match=next(iter(wrong))):
            _read("f7", **wrong)
    _connect(monkeypatch, shared)
    with pytest.raises(AirflowFailException, match="needs schema_registry_url in the connection"):
        _read("f7", value_format="registry")
    _connect(monkeypatch, shared, **{"schema.registry.url": "http://one:8081,http://two:8081"})
    with pytest.raises(AirflowFailException, match="schema_registry_url: its host or port cannot be read"):
        _read("f7", value_format="registry")
    tested = RecordsHook().test_connection()
    assert tested == (False, "Settings: schema_registry_url: its host or port cannot be read")
    _connect(monkeypatch, shared, schema_registry_url="http://127.0.0.1:1")
    monkeypatch.setattr(made_formats, "PACKAGES", ("httpx", "no_such_package.x"))
    with pytest.raises(AirflowFailException, match=r"no_such_package\.x is missing: pip install 'logyard\[schemas\]'"):
        _read("f7", value_format="registry")


def test_the_decorator_and_the_hook_decode_too(kafka: MockKafka) -> None:
    kafka.put("f8", value=_avro(7), partition=0)
    seen: list[Any] = []
    with DAG("f8"):

        @consume_task(topics=["f8"], group="f8", value_format="registry", commit_cadence="never")  # type: ignore[untyped-decorator]
        def store(messages: Any) -> None:
            seen.extend(message.value()["id"] for message in messages)

        read = store().operator
    run(read, context())
    assert seen == [7]
    hook = RecordsHook()
    consumer = hook.consumer("f8")
    decoding = hook.formats(value="registry")
    try:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition("f8", 0, 0)])
        (message,) = consumer.consume(1, timeout=10)
        assert [one.value()["id"] for one in decoding.decode([message], lambda problem: False)] == [7]
    finally:
        decoding.close()
        consumer.close()
    with pytest.raises(BadSettings, match="value_format"):
        hook.formats(value="xml")
