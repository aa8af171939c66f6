"""Every message and version against kio, cut short, and with what handlers may leave out."""

import tracemalloc
import uuid
from typing import Any, get_args

import pytest
from kio.schema.request_header.v0.header import RequestHeader as KioHeaderV0
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioAnswerV0
from kio.schema.response_header.v1.header import ResponseHeader as KioAnswerV1
from kio.serial import entity_reader

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec, primitives
from logyard.broker.protocol.schema import API_NAMES, ZERO_UUID, Kind
from logyard.broker.protocol.writers import Prepared, StructWriter
from logyard.broker.server.api_table import VERSIONS
from tests.support.messages import as_kio_sees, filled, kio_decode, kio_encode

# Facts §19: what 3.9 has beyond what we serve yet.
REST_OF_3_9 = {
    17: 1, 29: 3, 30: 3, 31: 3, 34: 2, 36: 2,
    48: 1, 49: 1, 50: 0, 51: 0, 57: 1, 65: 0, 66: 1,
}  # fmt: skip
LATEST = {key: high for key, (_, high) in VERSIONS.items()} | REST_OF_3_9
KINDS: tuple[Kind, ...] = get_args(Kind)
EVERY = [(key, version) for key in sorted(LATEST) for version in range(LATEST[key] + 1)]
NAMES = [f"{API_NAMES[key]}-{version}" for key, version in EVERY]
# What came after kio's schemas: the versions of transaction.version 2 (facts §17.12).
IN_KIO = [one for one in EVERY if one not in {(0, 12), (26, 5), (27, 2), (28, 5)}]
NAMES_IN_KIO = [f"{API_NAMES[key]}-{version}" for key, version in IN_KIO]
SEEDS = range(4)


def request_body(api_key: int, version: int, tree: dict[str, Any]) -> bytes:
    frame = codec.encode_request(api_key, version, 1, None, tree)
    head = 12 if (api_key, version) == (7, 0) else 14
    return frame[head + codec.is_flexible(api_key, version) :]


def response_body(api_key: int, version: int, tree: dict[str, Any]) -> bytes:
    frame = codec.encode_response(api_key, version, 1, tree)
    return frame[8 + (codec.is_flexible(api_key, version) and api_key != 18) :]


def body_of(api_key: int, kind: Kind, version: int, tree: dict[str, Any]) -> bytes:
    make = request_body if kind == "Request" else response_body
    return make(api_key, version, tree)


def decoded(api_key: int, kind: Kind, version: int, body: bytes) -> Any:
    if kind == "Request":
        return codec.decode_request(api_key, version, memoryview(body))
    flexible = codec.is_flexible(api_key, version) and api_key != 18
    return codec.decode_response(api_key, version, memoryview(bytes(4) + bytes(flexible) + body))[1]


def test_every_api_of_the_table_is_known() -> None:
    assert set(LATEST) == set(API_NAMES)
    for key, latest in LATEST.items():
        for kind in KINDS:
            assert codec.schema(key, kind).latest >= latest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("api_key", "version"), IN_KIO, ids=NAMES_IN_KIO)
def test_kio_agrees_on_every_byte(api_key: int, version: int, kind: Kind) -> None:
    fields = codec.schema(api_key, kind).fields
    for seed in SEEDS:
        tree = filled(api_key, kind, version, seed)
        if api_key == 18 and kind == "Response":
            tree["error_code"] = 0  # 35 would be read as version 0
        body = body_of(api_key, kind, version, tree)
        theirs, size = kio_decode(api_key, kind, version, body)
        assert size == len(body)
        assert as_kio_sees(fields, version, tree, theirs) == []
        assert kio_encode(theirs) == body
        ours = decoded(api_key, kind, version, body).as_dict()
        assert body_of(api_key, kind, version, ours) == body
        assert_holds(ours, tree)


def assert_holds(ours: Any, tree: Any) -> None:
    """Our decoded tree holds at least what was put in."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            assert_holds(ours[name], value)
    elif isinstance(tree, list):
        assert len(ours) == len(tree)
        for one, other in zip(ours, tree, strict=True):
            assert_holds(one, other)
    else:
        assert ours == tree


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("api_key", "version"), EVERY, ids=NAMES)
def test_a_body_cut_short_is_refused(api_key: int, version: int, kind: Kind) -> None:
    body = body_of(api_key, kind, version, filled(api_key, kind, version, 1) | {"error_code": 0})
    step = max(1, len(body) // 40)
    for size in {*range(0, len(body), step), len(body) - 1} - {-1}:
        with pytest.raises(CorruptData):
            decoded(api_key, kind, version, body[:size])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("api_key", "version"), IN_KIO, ids=NAMES_IN_KIO)
def test_defaults_are_those_of_kio(api_key: int, version: int, kind: Kind) -> None:
    """What handlers leave out is what Kafka would write, as far as kio states a default."""
    body = body_of(api_key, kind, version, {})
    theirs, size = kio_decode(api_key, kind, version, body)
    assert size == len(body)
    made = type(theirs)
    for name, field in made.__dataclass_fields__.items():
        if not name.startswith("__") and field.default is not field.default_factory:
            assert getattr(theirs, name) == field.default, name


def test_unknown_tagged_fields_are_stepped_over() -> None:
    body = codec.encode_request(3, 12, 1, None, {"topics": [{"name": "a"}]})[15:]
    assert body.endswith(b"\0")
    tagged = body[:-1] + b"\x02\x05\x03abc\xff\x01\x00"
    message = codec.decode_request(3, 12, memoryview(tagged))
    assert message == codec.decode_request(3, 12, memoryview(body))
    for broken in (b"\x01\x05\x04abc", b"\x01\x05", b"\xff\xff\xff\xff\xff\x01", b"\x80"):
        with pytest.raises(CorruptData):
            codec.decode_request(3, 12, memoryview(body[:-1] + broken))


def test_a_tagged_field_must_fill_its_size() -> None:
    body = codec.encode_request(6, 8, 1, None, {"type": 1})[15:]
    assert body.endswith(b"\x01\x00\x01\x01")
    assert codec.decode_request(6, 8, memoryview(body)).type == 1
    for broken in (b"\x01\x00\x02\x01\x00", b"\x01\x00\x00\x01"):
        with pytest.raises(CorruptData):
            codec.decode_request(6, 8, memoryview(body[:-4] + broken))


@pytest.mark.parametrize(
    ("version", "length"), [(8, b"\x7f\xff\xff\xff"), (8, b"\xff\xff\xff\xfe"), (9, b"\xff\xff\xff\xff\x0f")]
)
def test_array_lengths_are_bounded_by_the_frame(version: int, length: bytes) -> None:
    for size in (0, 100_000):
        with pytest.raises(CorruptData):
            codec.decode_request(3, version, memoryview(length + bytes(size)))


def test_nulls_only_where_they_are_allowed() -> None:
    assert codec.decode_request(3, 1, memoryview(b"\xff\xff\xff\xff")).topics is None
    with pytest.raises(CorruptData):
        codec.decode_request(3, 0, memoryview(b"\xff\xff\xff\xff"))
    with pytest.raises(CorruptData, match="member_id"):
        codec.decode_request(12, 0, memoryview(b"\0\1g\0\0\0\1\xff\xff"))
    with pytest.raises(CorruptData):
        codec.decode_request(12, 0, memoryview(b"\0\1g\0\0\0\1\xff\xfe"))


def test_text_that_is_not_utf8_is_replaced_as_by_kafka() -> None:
    asked = codec.decode_request(12, 0, memoryview(b"\0\4caf\xe9\0\0\0\1\0\0"))
    assert (asked.group_id, asked.generation_id) == ("caf\ufffd", 1)
    assert codec.decode_request(12, 4, memoryview(b"\5caf\xe9\0\0\0\1\1\0\0")).group_id == "caf\ufffd"


def test_unknown_keys_and_versions_are_refused() -> None:
    for api_key, version in ((999, 0), (-1, 0), (3, -1), (3, 99), (59, 0)):
        with pytest.raises(CorruptData):
            codec.decode_request(api_key, version, memoryview(bytes(50)))


def test_absent_fields_have_their_defaults() -> None:
    message = codec.decode_request(3, 1, memoryview(b"\0\0\0\0"))
    assert message.allow_auto_topic_creation is True
    fetch = codec.decode_request(1, 0, memoryview(bytes(16)))
    assert (fetch.replica_state.replica_id, fetch.forgotten_topics_data, fetch.rack_id) == (-1, [], "")
    with pytest.raises(AttributeError, match="has no field 'topicz'"):
        _ = message.topicz


def test_what_an_answer_leaves_out() -> None:
    made = codec.encode_response(19, 7, 5, {"topics": [{"name": "t", "unknown": 1}], "more": 2})
    correlation_id, message = codec.decode_response(19, 7, memoryview(made)[4:])
    (topic,) = message.topics
    assert correlation_id == 5
    # An absent error message is null, not empty: clients then use the text of the code.
    assert (topic.error_message, topic.topic_id, topic.num_partitions) == (None, ZERO_UUID, -1)


def test_null_becomes_empty_in_versions_without_it() -> None:
    assert codec.encode_response(11, 0, 1, {"protocol_name": None}) == codec.encode_response(
        11, 0, 1, {"protocol_name": ""}
    )
    with pytest.raises(ValueError, match=r"MetadataResponse v1.*host is None"):
        codec.encode_response(3, 1, 1, {"brokers": [{"host": None}]})


def test_values_that_do_not_fit_name_the_message() -> None:
    for fields in ({"error_code": 2**15}, {"error_code": "x"}, {"throttle_time_ms": None}):
        with pytest.raises(ValueError, match="HeartbeatResponse v1"):
            codec.encode_response(12, 1, 1, fields)


def test_a_frame_states_its_size() -> None:
    made = codec.encode_response(12, 4, 77, {})
    assert int.from_bytes(made[:4], "big") == len(made) - 4
    answer, size = entity_reader(KioAnswerV1)(made, 4)
    assert (answer.correlation_id, size) == (77, 5)


def test_api_versions_answers_have_the_old_header() -> None:
    fields = {"api_keys": [{"api_key": 3, "min_version": 0, "max_version": 12}]}
    made = codec.encode_response(18, 3, 77, fields)
    answer, size = entity_reader(KioAnswerV0)(made, 4)
    assert (answer.correlation_id, size) == (77, 4)
    theirs, size = kio_decode(18, "Response", 3, made[8:])
    assert size == len(made) - 8
    assert [(k.api_key, k.min_version, k.max_version) for k in theirs.api_keys] == [(3, 0, 12)]


def test_a_refusal_of_api_versions_is_read_as_version_0() -> None:
    fields = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}
    frame = memoryview(codec.encode_response(18, 0, 9, fields))[4:]
    correlation_id, message = codec.decode_response(18, 4, frame)
    assert (correlation_id, message.error_code, message.api_keys[0].max_version) == (9, 35, 4)


@pytest.mark.parametrize(
    ("api_key", "version", "header"),
    [(7, 0, KioHeaderV0), (7, 1, KioHeaderV1), (3, 8, KioHeaderV1), (3, 9, KioHeaderV2)],
)
def test_request_headers_are_those_of_kio(api_key: int, version: int, header: Any) -> None:
    made = codec.encode_request(api_key, version, -5, "cliënt", {})
    theirs, size = entity_reader(header)(made, 4)
    assert (theirs.request_api_key, theirs.request_api_version, theirs.correlation_id) == (api_key, version, -5)
    assert getattr(theirs, "client_id", "cliënt") == "cliënt"
    assert kio_decode(api_key, "Request", version, made[4 + size :])[1] == len(made) - 4 - size


def test_response_headers_cut_short_are_refused() -> None:
    for frame in (b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\x05"):
        with pytest.raises(CorruptData):
            codec.decode_response(12, 4, memoryview(frame))
        with pytest.raises(CorruptData):
            codec.decode_response(18, 0, memoryview(frame))


def test_bytes_are_copied_but_records_are_not() -> None:
    """A frame's buffer is used again for the next one: only Produce and Fetch may hold on to it."""
    buffer = bytearray(codec.encode_request(14, 3, 1, None, {"assignments": [{"assignment": b"abc"}]}))
    sync = codec.decode_request(14, 3, memoryview(buffer)[14:])
    records = {"topic_data": [{"partition_data": [{"records": b"xyz"}]}]}
    frame = bytearray(codec.encode_request(0, 8, 1, None, records))
    produce = codec.decode_request(0, 8, memoryview(frame)[14:])
    buffer[:] = bytes(len(buffer))
    frame[-3:] = b"123"
    assert sync.assignments[0].assignment == b"abc"
    assert produce.topic_data[0].partition_data[0].records == b"123"


def test_topic_ids_are_uuids() -> None:
    topic_id = uuid.uuid4()
    frame = codec.encode_request(3, 12, 1, None, {"topics": [{"topic_id": topic_id, "name": None}, {"name": "b"}]})
    message = codec.decode_request(3, 12, memoryview(frame)[15:])
    assert [(t.topic_id, t.name) for t in message.topics] == [(topic_id, None), (ZERO_UUID, "b")]


class Written(Prepared):
    """Two structs that are given as values."""

    VALUES = ("topic_name", "partition_index", "isr", "replicas", "leader")

    def __init__(self, write: StructWriter) -> None:
        self.write = write

    def __len__(self) -> int:
        return 2

    def append_to(self, out: bytearray) -> None:
        for number in (0, 1):
            self.write(out, "t", number, (1, number), (), 2**31 - 1)


@pytest.mark.parametrize(
    ("api_key", "version"), [(key, n) for key, latest in ((4, 7), (6, 8)) for n in range(latest + 1)]
)
def test_structs_that_are_written_from_values_are_the_same(api_key: int, version: int) -> None:
    """LeaderAndIsr and UpdateMetadata: no mapping for each partition."""
    grouped = version >= {4: 2, 6: 5}[api_key]
    path = ("topic_states", "partition_states") if grouped else ("ungrouped_partition_states",)
    rows = [("t", number, (1, number), (), 2**31 - 1) for number in (0, 1)]

    def fields(states: Any) -> dict[str, Any]:
        return {"topic_states": [{"topic_name": "t", path[-1]: states}]} if grouped else {path[-1]: states}

    expected = codec.encode_request(
        api_key, version, 1, "c", fields([dict(zip(Written.VALUES, r, strict=True)) for r in rows])
    )
    write = codec.struct_writer_of(api_key, "Request", version, path, Written.VALUES)
    for _ in range(2):
        assert codec.encode_request(api_key, version, 1, "c", fields(Written(write))) == expected


@pytest.mark.parametrize("unfit", [2**31, None, "1", 1.5])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_value_that_does_not_fit_is_refused_wherever_it_comes_from(unfit: Any, at: int) -> None:
    write = codec.struct_writer_of(4, "Request", 7, ("topic_states", "partition_states"), ("leader", "isr", "replicas"))

    class Unfit(Written):
        def append_to(self, out: bytearray) -> None:
            values: list[Any] = [1, (1, 2), (1, 2)]
            values[at] = unfit if at == 0 else (1, unfit)
            write(out, *values)

    with pytest.raises(ValueError, match="LeaderAndIsrRequest v7"):
        codec.encode_request(4, 7, 1, "c", {"topic_states": [{"partition_states": Unfit(write)}]})


@pytest.mark.parametrize("size", [32_767, 32_768])
def test_a_string_is_no_longer_than_the_classic_length_allows(size: int) -> None:
    """Compact lengths could say more. Who took such a group id could store nothing under it."""
    fields = {"group_id": "g" * size, "member_id": "", "generation_id_or_member_epoch": -1, "topics": []}
    body = memoryview(codec.encode_request(8, 8, 1, None, fields))[4 + 8 + 2 + 1 :]
    if size == 32_767:
        assert codec.decode_request(8, 8, body).group_id == "g" * size
    else:
        with pytest.raises(CorruptData, match="group_id"):
            codec.decode_request(8, 8, body)


@pytest.mark.parametrize(("api_key", "version"), EVERY, ids=NAMES)
def test_a_large_request_is_decoded_the_same(api_key: int, version: int) -> None:
    for seed in SEEDS:
        body = memoryview(request_body(api_key, version, filled(api_key, "Request", version, seed)))
        message, size = codec.decode_large_request(api_key, version, body, 1 << 30)
        assert message == codec.decode_request(api_key, version, body)
        assert size >= len(body)


SMALL_ELEMENTS = {
    "DescribeConfigs": (32, 4, b"\2\1\0\0", b"\0\0\0"),
    "OffsetFetch": (9, 8, b"\1\0\0", b"\0\0"),
    "CreateTopics": (19, 5, b"\1\0\1\0\0\0\0\1\1\0", b"\0\0\0\0\0\0"),
    "DeleteGroups": (42, 2, b"\3\xc3\xa9", b"\0"),
    "Metadata": (3, 9, b"\2a\0", b"\0\0\0\0"),
}


@pytest.mark.parametrize(("api_key", "version", "element", "rest"), SMALL_ELEMENTS.values(), ids=[*SMALL_ELEMENTS])
def test_what_a_request_takes_in_memory_is_bounded(api_key: int, version: int, element: bytes, rest: bytes) -> None:
    count = 20_000
    body = memoryview(primitives.uvarint(count + 1) + element * count + rest)
    codec.decode_request(api_key, version, body)  # which makes the functions that stay
    tracemalloc.start()
    try:
        message, size = codec.decode_large_request(api_key, version, body, 1 << 30)
        assert message is not None
        taken, _ = tracemalloc.get_traced_memory()
        assert taken < 1.25 * size, "what is counted"
        del message
        tracemalloc.reset_peak()
        with pytest.raises(CorruptData, match="would take more than"):
            codec.decode_large_request(api_key, version, body, size // 2)
        _, most = tracemalloc.get_traced_memory()
        assert most < size
    finally:
        tracemalloc.stop()
