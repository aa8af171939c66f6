"""For any bytes, a decoder returns a message or raises CorruptData, and stays within its buffer."""

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec, fetch, fetch_client, produce
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.server.api_table import VERSIONS
from tests.support.messages import filled

EVERY = [(key, v) for key, (low, high) in sorted(VERSIONS.items()) for v in range(low, high + 1)]
NASTY = [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80", b"\0", b"\1", b"\xff\xfe", b"\x7f"]


def read(kind: str, api_key: int, version: int, data: memoryview) -> Any:
    if kind == "Request":
        codec.decode_request(api_key, version, data)
        if api_key == 0:
            produce.parse_request(version, data)
        if api_key == 1:
            fetch.parse_request(version, data)
    else:
        codec.decode_response(api_key, version, data)
        if api_key == 1:
            fetch_client.decode_response(version, data)


def answers_or_refuses(kind: str, api_key: int, version: int, data: bytes) -> None:
    with suppress(CorruptData):
        read(kind, api_key, version, memoryview(data))


@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_damaged_messages_are_read_or_refused(kind: str) -> None:
    rng = random.Random(kind)
    for api_key, version in EVERY:
        tree = filled(api_key, kind, version, 2)  # type: ignore[arg-type]
        whole = (
            codec.encode_request(api_key, version, 1, None, tree)[14:]
            if kind == "Request"
            else codec.encode_response(api_key, version, 1, tree)[4:]
        )
        for _ in range(40):
            damaged = bytearray(whole)
            at = rng.randrange(len(damaged) + 1)
            nasty = rng.choice(NASTY)
            damaged[at : at + len(nasty)] = nasty
            answers_or_refuses(kind, api_key, version, bytes(damaged))


@given(st.sampled_from(EVERY), st.sampled_from(["Request", "Response"]), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(api: tuple[int, int], kind: str, data: bytes) -> None:
    answers_or_refuses(kind, *api, data)


@given(st.binary(max_size=60))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    try:
        header = parse_request_header(memoryview(data))
    except CorruptData:
        return
    assert data.endswith(bytes(header.body))


texts = st.text(max_size=20)
endpoints = st.builds(produce.NodeEndpoint, st.integers(0, 99), texts, st.integers(0, 65535), st.none() | texts)


@given(
    st.integers(8, 11),
    st.lists(
        st.builds(
            produce.PartitionOutcome,
            texts,
            st.integers(0, 5),
            st.integers(-1, 99),
            st.integers(-1, 2**62),
            log_append_time_ms=st.just(-1),
            log_start_offset=st.just(-1),
            error_message=st.none() | texts,
            record_errors=st.lists(st.tuples(st.integers(0, 9), st.none() | texts), max_size=3),
            current_leader=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
        ),
        max_size=6,
    ),
    st.lists(endpoints, max_size=3),
)
def test_produce_answers_are_read_back(
    version: int, outcomes: list[produce.PartitionOutcome], nodes: list[produce.NodeEndpoint]
) -> None:
    frame = memoryview(produce.encode_response(version, 5, outcomes, 1, nodes))[4:]
    _, message = codec.decode_response(0, version, frame)
    read_back = [
        (t.name, p.index, p.error_code, p.base_offset, p.error_message, len(p.record_errors))
        for t in message.responses
        for p in t.partition_responses
    ]
    assert [t.name for t in message.responses] == list(dict.fromkeys(o.topic for o in outcomes)), "each topic once"
    by_topic = [o for t in message.responses for o in outcomes if o.topic == t.name]
    assert read_back == [
        (o.topic, o.partition, o.error_code, o.base_offset, o.error_message, len(o.record_errors)) for o in by_topic
    ]
    leaders = [
        (p.current_leader.leader_id, p.current_leader.leader_epoch)
        for t in message.responses
        for p in t.partition_responses
    ]
    assert leaders == [(o.current_leader if version >= 10 and o.current_leader else (-1, -1)) for o in by_topic]
    assert len(message.node_endpoints) == (len(nodes) if version >= 10 else 0)
