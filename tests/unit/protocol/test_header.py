"""The request header and the cutting of frames."""

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec
from logyard.broker.protocol.frames import FrameBuffer
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
        b"\0\3\0\0\0\0\0\1\0\1\xff",
        b"\0\3\0\x09\0\0\0\1\0\1c",
        b"\0\3\0\x09\0\0\0\1\0\1c\1",
        b"\0\3\0\x09\0\0\0\1\0\1c\1\0\5ab",
    ],
)
def test_broken_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_request_header(memoryview(frame))


def test_frames_come_out_whatever_the_pieces() -> None:
    frames = [b"", b"a", b"x" * 300, b"", b"yz"]
    stream = b"".join(len(f).to_bytes(4, "big") + f for f in frames)
    for step in (1, 2, 3, 5, 7, 100, len(stream)):
        buffer = FrameBuffer(300)
        got = [f for at in range(0, len(stream), step) for f in buffer.feed(stream[at : at + step])]
        assert [bytes(f) for f in got] == frames
        assert len(buffer) == 0


def test_frames_are_writable_and_keep_their_bytes() -> None:
    buffer = FrameBuffer(10)
    (first,) = buffer.feed(b"\0\0\0\2ab\0\0\0")
    assert len(buffer) == 3
    (second,) = buffer.feed(b"\1c")
    first[0:1] = b"z"
    assert (bytes(first), bytes(second)) == (b"zb", b"c")


@pytest.mark.parametrize("size", [b"\0\0\0\x0b", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_impossible_sizes_are_refused(size: bytes) -> None:
    with pytest.raises(CorruptData):
        FrameBuffer(10).feed(size)
