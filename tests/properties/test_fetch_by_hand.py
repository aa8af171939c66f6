"""What a follower codes by hand of Fetch against the same by the schema: the same bytes, the same values."""

import struct
import uuid
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import fetch, fetch_client
from logyard.broker.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import FetchResponse
from logyard.broker.protocol.produce import NodeEndpoint

ids = st.sampled_from([uuid.UUID(int=n) for n in (0, 7, 2**127 + 5)])
int8, int16, int32, int64 = (st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1) for n in (1, 2, 4, 8))
pairs = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))

asked = st.builds(FetchPartition, st.none(), ids, int32, int64, int32, int32, int32, int64)
requests = st.builds(
    FetchRequest,
    replica_id=st.just(-1) | int32,
    max_wait_ms=int32,
    min_bytes=int32,
    partitions=st.lists(asked, max_size=130) | st.lists(asked, max_size=4),
    max_bytes=int32 | st.just(2**31),
    isolation=int8,
    session_id=int32,
    session_epoch=int32,
    forgotten=st.just(()) | st.lists(st.tuples(st.none(), ids, int32), max_size=2),
    rack_id=st.sampled_from(["", "", "rack"]),
    replica_epoch=st.just(-1) | int64,
    cluster_id=st.none() | st.just("cluster"),
)
fetched = st.builds(
    FetchedPartition,
    st.none(),
    ids,
    int32,
    int16,
    int64,
    st.binary(max_size=200),
    int64,
    int64,
    st.none() | st.none() | st.lists(st.tuples(int64, int64), max_size=2),
    int32,
    st.none() | pairs,
    st.none() | pairs,
    st.none() | pairs,
)
client_ids = st.none() | st.text(max_size=5)


def encoded(*arguments: Any) -> bytes | str:
    try:
        return fetch_client.encode_request(17, *arguments)
    except ValueError as error:
        return str(error)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(int32, client_ids, requests)
def test_a_request_has_the_same_bytes(correlation_id: int, client_id: str | None, request: FetchRequest) -> None:
    by_hand = encoded(correlation_id, client_id, request)
    with patch.object(fetch_client, "_by_hand", side_effect=struct.error):
        assert by_hand == encoded(correlation_id, client_id, request)


def decoded(frame: memoryview) -> FetchResponse | None:
    """None where the frame is refused."""
    try:
        found = fetch_client.decode_response(17, frame)
    except CorruptData:
        return None
    return found._replace(partitions=[each._replace(records=bytes(each.records)) for each in found.partitions])


def compared(frame: bytes) -> FetchResponse | None:
    found = decoded(memoryview(frame))
    with patch.object(fetch_client, "_plain_response", return_value=None):
        assert found == decoded(memoryview(frame))
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(fetched, max_size=6), int32, int16, int32, st.booleans(), st.data())
def test_an_answer_has_the_same_values(
    partitions: list[FetchedPartition],
    throttle_ms: int,
    error_code: int,
    session_id: int,
    tags: bool,
    data: st.DataObject,
) -> None:
    pieces = fetch.encode_response(
        17,
        5,
        partitions,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        node_endpoints=[NodeEndpoint(1, "h", 2, None)] if tags else (),
    )
    frame = bytearray(b"".join(pieces)[4:])
    assert compared(bytes(frame)) is not None
    for _ in range(4):
        spoilt = bytearray(frame)
        at = data.draw(st.integers(0, len(frame) - 1))
        spoilt[at] = data.draw(st.integers(0, 255))
        compared(bytes(spoilt[: data.draw(st.integers(0, len(frame)))]))
        compared(bytes(spoilt))


def test_the_plain_ones_are_coded_by_hand() -> None:
    request = FetchRequest(3, 500, 1, [FetchPartition(None, uuid.UUID(int=7), 0, 1, 2)], replica_epoch=4)
    answer = [FetchedPartition(None, uuid.UUID(int=7), 0, 0, 5, b"records", 5, 0)]
    with patch("logyard.broker.protocol.codec.encode_request", side_effect=AssertionError):
        fetch_client.encode_request(17, 1, "c", request)
    with patch("logyard.broker.protocol.codec.decode_response", side_effect=AssertionError):
        frame = b"".join(fetch.encode_response(17, 1, answer))[4:]
        assert fetch_client.decode_response(17, memoryview(frame)).partitions == answer
