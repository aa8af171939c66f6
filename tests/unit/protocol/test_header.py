"""The request header and the cutting of frames."""

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import FLEXIBLE_FROM, parse_request_header
from logyard.broker.protocol.schema import API_NAMES


@pytest.mark.parametrize("client_id", ["", "client-ü", None])
@pytest.mark.parametrize(("api_key", "version"), [(3, 8), (3, 9), (18, 4), (0, 11), (7, 1), (7, 3)])
def test_what_the_codec_writes_is_read(api_key: int, version: int, client_id: str | None) -> None:
    frame = memoryview(codec.encode_request(api_key, version, -7, client_id, {}))[4:]
    header = parse_request_header(frame)
    assert header[:4] == (api_key, version, -7, client_id)
    codec.decode_request(api_key, version, header.body)
    head = 10 + len((client_id or "").encode()) + (version >= FLEXIBLE_FROM[api_key])
    assert len(header.body) == len(frame) - head


def test_the_first_controlled_shutdown_has_no_client_id() -> None:
    frame = memoryview(codec.encode_request(7, 0, 3, "ignored", {"broker_id": 12}))[4:]
    header = parse_request_header(frame)
    assert header.client_id is None
    assert codec.decode_request(7, 0, header.body).broker_id == 12


def test_first_flexible_versions_are_those_of_the_schemas() -> None:
    for api_key in API_NAMES:
        flexible = codec.schema(api_key, "Request").flexible
        assert FLEXIBLE_FROM.get(api_key) == (flexible.low if flexible else None), API_NAMES[api_key]
        assert codec.schema(api_key, "Response").flexible == flexible


def test_the_body_is_the_frame_itself() -> None:
    frame = bytearray(codec.encode_request(12, 3, 1, "c", {"group_id": "g"}))
    body = parse_request_header(memoryview(frame)[4:]).body
    body[2:3] = b"h"
    assert codec.decode_request(12, 3, memoryview(frame)[15:]).group_id == "h"


def test_tagged_fields_of_the_header_are_stepped_over() -> None:
    frame = b"\0\x12\0\x03\0\0\0\1\0\1c" + b"\1\7\2ab" + b"body"
    assert bytes(parse_request_header(memoryview(frame)).body) == b"body"


def test_an_api_versions_request_from_the_future_is_read() -> None:
    assert parse_request_header(memoryview(b"\0\x12\x7f\xff\0\0\0\1\0\1c\0rest")).api_version == 32767


def test_an_unknown_key_is_left_to_the_caller() -> None:
    assert parse_request_header(memoryview(b"\x03\xe7\0\0\0\0\0\1\xff\xff")).api_key == 999


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\0\0\0\0",
        b"\0\3\0\0\0\0\0\1\0",
        b"\0\3\0\0\0\0\0\1\0\5abcd",
        b"\0\3\0\0\0\0\0\1\xff\xfe",
        b"\0\3\0\x09\0\0\0\1\0\1c",
        b"\0\3\0\x09\0\0\0\1\0\1c\1",
        b"\0\3\0\x09\0\0\0\1\0\1c\1\0\5ab",
    ],
)
def test_broken_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_request_header(memoryview(frame))


def test_a_client_id_that_is_not_utf8_is_replaced_as_by_kafka() -> None:
    """Clients in C send the bytes of their configuration, in whatever encoding it is."""
    header = parse_request_header(memoryview(b"\0\3\0\0\0\0\0\1\0\4B\xfcrorest"))
    assert (header.client_id, bytes(header.body)) == ("B\ufffdro", b"rest")


def test_a_header_with_many_tagged_fields_is_refused_at_once() -> None:
    head = b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff"
    assert parse_request_header(memoryview(head + b"\x02\x00\x00\x01\x00")).api_key == 18
    many = memoryview(head + b"\xff\xff\xff\x7f" + bytes(1 << 20))
    with pytest.raises(CorruptData, match="tagged fields"):
        parse_request_header(many)
