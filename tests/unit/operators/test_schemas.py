"""Records that serializers of a schema registry wrote: decoded within bounds, or one line that says why not."""

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from logyard.admin.schema_registry import SchemaRegistry
from logyard.admin.settings import ClusterSettings
from logyard.operators.contents.decoding import Shown, decode
from logyard.operators.contents.masks import STARS, fields_of, read_rules
from logyard.operators.contents.schemas import decoder as decoding
from logyard.operators.contents.schemas.decoder import Decoder, refusing
from logyard.operators.contents.shown import contents
from tests.support.schema_registry import framed, registry

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": "shop.Address"},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "street", "type": "string"}]}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
COMMON = 'syntax = "proto3"; package shop; message Address { string street = 1; }'
PROTO = """syntax = "proto3"; package shop;
import "shop/common.proto"; import "google/protobuf/timestamp.proto";
message First { int32 n = 1; }
message Order {
  map<string, int32> counts = 1;
  message Line { int64 item_id = 1; shop.Address to = 2; google.protobuf.Timestamp at = 3; }
}"""
SCHEMAS: dict[int, dict[str, Any]] = {
    1: {"schema": '"string"'},
    2: {"schema": json.dumps(ORDER), "references": [{"name": "shop.Address", "subject": "a/b", "version": 3}]},
    3: {"schema": PROTO, "schemaType": "PROTOBUF"}
    | {"references": [{"name": "shop/common.proto", "subject": "common", "version": 1}]},
    4: {"schema": '{"type": "object"}', "schemaType": "JSON"},
    5: {"schema": '{"type": "array", "items": "null"}'},
    6: {"schema": json.dumps(LIST)},
    7: {"schema": '"string"', "references": [{"name": "x", "subject": "loop", "version": 1}]},
    8: {"schema": "message {", "schemaType": "PROTOBUF"},
    9: {"schema": COMMON, "schemaType": "PROTOBUF"}
    | {"references": [{"name": "../../taken.proto", "subject": "common", "version": 1}]},
    10: {"schema": "{}", "schemaType": "XML"},
    11: {"schema": '{"type": "nonsense"}'},
    12: {"schema": '["shop.Address", "int"]'}
    | {"references": [{"name": "shop.Address", "subject": "a/b", "version": 3}]},
}
VERSIONS: dict[tuple[str, int], dict[str, Any]] = {
    ("a%2Fb", 3): {"schema": json.dumps(ADDRESS)},
    ("common", 1): {"schema": COMMON, "schemaType": "PROTOBUF"},
    ("loop", 1): {"schema": '"string"', "references": [{"name": "x", "subject": "loop", "version": 1}]},
}


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    made = Decoder()
    yield made
    made.close()


@pytest.fixture(scope="module")
def where() -> Iterator[SchemaRegistry]:
    with registry(SCHEMAS, VERSIONS) as served:
        yield SchemaRegistry(served.url)


def _avro(content: Any) -> bytes:
    out, named = io.BytesIO(), dict[str, Any]()
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), content)
    return out.getvalue()


def _shown(decoder: Decoder, where: SchemaRegistry, data: bytes, mask: Any = None) -> Shown:
    shown = decode(data, mask, decoder.by(where))
    assert shown is not None
    return shown


def test_avro_is_decoded_with_what_its_schema_refers_to(decoder: Decoder, where: SchemaRegistry) -> None:
    from datetime import date
    from decimal import Decimal

    order = {"id": 2**60, "to": {"street": "Ä 1"}, "paid": Decimal("12.50"), "day": date(2026, 1, 31)}
    shown = _shown(decoder, where, framed(2, _avro(order)))
    assert (shown.kind, shown.problem) == ("avro", "")
    assert json.loads(shown.text) == {"id": 2**60, "to": {"street": "Ä 1"}, "paid": "12.50", "day": "2026-01-31"}
    assert _shown(decoder, where, framed(1, b"\x06abc")).text == "abc"  # a key is often a text alone
    assert json.loads(_shown(decoder, where, framed(12, b"\x00\x06abc")).text) == {"street": "abc"}


def test_protobuf_is_decoded_by_its_messages_indexes(decoder: Decoder, where: SchemaRegistry) -> None:
    first = framed(3, b"\x00" + b"\x08\x07")
    assert json.loads(_shown(decoder, where, first).text) == {"n": 7}
    # Order.Line: two indexes, 1 and 0, zigzag; the map's entry, which the compiler nests before Line, does not count.
    line = framed(3, b"\x04\x02\x00" + b"\x08\x05" + b"\x12\x03\x0a\x01s" + b"\x1a\x02\x08\x01")
    shown = _shown(decoder, where, line)
    assert shown.kind == "protobuf"
    assert json.loads(shown.text) == {"item_id": "5", "to": {"street": "s"}, "at": "1970-01-01T00:00:01Z"}
    for odd in (b"\x02\x12", b"\x64", b"\xff\xff\xff\xff\xff\xff", b"\x01"):
        assert "message" in _shown(decoder, where, framed(3, odd)).problem
    assert "does not fit" in _shown(decoder, where, framed(3, b"\x00\x08")).problem


def test_json_schema_is_decoded_and_the_rest_left_alone(decoder: Decoder, where: SchemaRegistry) -> None:
    assert json.loads(_shown(decoder, where, framed(4, b'{"a": 1}')).text) == {"a": 1}
    assert "no JSON" in _shown(decoder, where, framed(4, b"nothing")).problem
    assert _shown(decoder, where, b'{"a": 1}').kind == "json"
    assert _shown(decoder, where, b"plain").kind == "text"
    assert decode(None, None, decoder.by(where)) is None


def test_masks_hide_decoded_fields(decoder: Decoder, where: SchemaRegistry) -> None:
    from datetime import date
    from decimal import Decimal

    fields = fields_of(read_rules('[{"fields": ["to.street"]}]'), "t", [])
    order = {"id": 1, "to": {"street": "secret"}, "paid": Decimal(1), "day": date(2026, 1, 31)}
    key, value = contents(framed(1, b"\x06abc"), framed(2, _avro(order)), fields, decoder.by(where))
    assert key is not None
    assert value is not None
    assert key.kind == "hidden"
    assert json.loads(value.text)["to"] == {"street": STARS}
    missing, _ = contents(framed(99, b"secret"), None, fields, decoder.by(where))
    assert missing == Shown("hidden", "", 11)  # what cannot be decoded has no fields to be hidden


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (17, "schema 17 is not there"),
        (7, "references go deeper than 10"),
        (8, "its Protobuf schema cannot be used"),
        (9, "a file of a name that is not allowed"),
        (10, "of the type XML, which is not known here"),
        (11, "its Avro schema cannot be used"),
        (2, "it does not fit its Avro schema"),
    ],
)
def test_what_is_not_decoded_says_why(decoder: Decoder, where: SchemaRegistry, schema: int, why: str) -> None:
    shown = _shown(decoder, where, framed(schema, b"\x02"))
    assert why in shown.problem
    assert "\n" not in shown.problem
    assert (shown.kind, shown.text) == ("schema", f"schema {schema}: 02")


def test_hostile_bytes_end_the_decoder_and_nothing_else(decoder: Decoder, where: SchemaRegistry) -> None:
    deep = framed(6, b"\x02" * 900_000 + b"\x00")
    assert "it cannot be decoded" in _shown(decoder, where, deep).problem
    many = framed(5, b"\x80\x80\x80\x80\x80\x80\x80\x80\x40\x00")  # 2^61 nulls, which take no bytes
    began = time.monotonic()
    shown = _shown(decoder, where, many)
    assert "decoded" in shown.problem
    assert time.monotonic() - began < 2 * decoding.ANSWER_S
    assert _shown(decoder, where, framed(1, b"\x06abc")).text == "abc"


def test_a_registry_is_asked_once_for_a_schema(decoder: Decoder) -> None:
    with registry(SCHEMAS, VERSIONS) as served:
        for _ in range(3):
            _shown(decoder, SchemaRegistry(served.url), framed(1, b"\x06abc"))
            _shown(decoder, SchemaRegistry(served.url), framed(17, b"\x06abc"))
        assert served.asked == ["/schemas/ids/1", "/schemas/ids/17"]


def test_one_look_asks_for_few_schemas(decoder: Decoder) -> None:
    with registry({}) as served:
        by_schema = decoder.by(SchemaRegistry(served.url))
        shown = [decode(framed(number, b"x"), None, by_schema) for number in range(1, 60)]
        assert len(served.asked) == decoding.SCHEMAS_MAX
        assert shown[-1] is not None
        assert "one look asks for 50 schemas at most" in shown[-1].problem


@pytest.mark.parametrize("fault", ["hang", "drip", "large", "not json", "elsewhere", "log-in", "gone"])
def test_a_registry_that_fails_is_named_in_one_line(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ANSWER_S", 4.0)
    made = Decoder()
    try:
        with registry(SCHEMAS) as served, registry({1: {"schema": '"string"'}}) as other:
            served.hang_s, served.drip = (30.0 if fault == "hang" else 0.0), fault == "drip"
            served.raw = {"large": b"[" * 3_000_000, "not json": b"<html>"}.get(fault)
            served.redirect = f"{other.url}/schemas/ids/1" if fault == "elsewhere" else None
            served.login = "reader:right" if fault == "log-in" else None
            url = "http://127.0.0.1:1" if fault == "gone" else served.url
            where = SchemaRegistry(url, "reader", "wr0ng")
            began = time.monotonic()
            first = _shown(made, where, framed(1, b"\x06abc"))
            assert time.monotonic() - began < 8
            expected = {
                "hang": "the registry does not answer in time",
                "drip": "in time",
                "large": "larger than 1 MiB",
                "not json": "is schema_registry_url right?",
                "elsewhere": "the registry answers with status 302",
                "log-in": "the registry refuses this user",
                "gone": "the registry does not answer",
            }
            assert expected[fault] in first.problem
            assert "wr0ng" not in first.problem
            assert other.asked == []
            if fault in ("hang", "gone", "log-in"):
                asked = len(served.asked)
                assert _shown(made, where, framed(2, b"\x06abc")).problem == first.problem
                assert len(served.asked) == asked, "it is not asked again at once"
            if fault == "log-in":
                right = SchemaRegistry(url, "reader", "right")
                assert _shown(made, right, framed(1, b"\x06abc")).text == "abc"
    finally:
        made.close()


def test_the_address_comes_from_the_connection() -> None:
    found = ClusterSettings.read(
        "b:9092",
        {
            "schema_registry_url": "https://r:8081/apis/ccompat/v7/",
            "schema_registry_username": "u",
            "schema_registry_password": "s3cret",
        },
    )
    assert found.schema_registry == SchemaRegistry("https://r:8081/apis/ccompat/v7", "u", "s3cret")
    assert "s3cret" in found.secrets()
    assert "s3cret" not in repr(found)
    other = {"schema.registry.url": "https://r", "basic.auth.user.info": "u:p:q"}
    assert ClusterSettings.read("b:9092", other).schema_registry == SchemaRegistry("https://r", "u", "p:q")
    assert ClusterSettings.read("b:9092").schema_registry is None


@pytest.mark.parametrize(
    "extra",
    [
        *(
            {"schema_registry_url": wrong}
            for wrong in ("r:8081", "ftp://r", "http://[", "https://r:x", "https://r?x=1")
        ),
        {"schema.registry.url": "http://u:s3cret@r:8081"},
        {"schema.registry.url": "http://r:8081", "basic.auth.user.info": "u:s3cret"},
        {"schema.registry.url": "http://one:8081,http://two:8081"},
    ],
)
def test_a_registry_that_cannot_be_used_hinders_only_who_decodes(extra: dict[str, str]) -> None:
    """A connection of Kafka's clients names registries in ways that are not taken here."""
    found = ClusterSettings.read("b:9092", extra)
    assert (found.bootstrap, found.schema_registry) == (("b:9092",), None)
    assert "schema_registry_url" in found.schema_registry_problem
    assert "s3cret" not in found.schema_registry_problem
    by_schema = refusing(found.schema_registry_problem)
    shown = decode(framed(1, b"\x06abc"), None, by_schema)
    assert shown is not None
    assert shown.problem == found.schema_registry_problem
    assert decode(b"plain", None, by_schema) == Shown("text", "plain", 5)
