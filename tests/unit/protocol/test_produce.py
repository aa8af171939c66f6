"""The hand-written Produce against the codec, which kio holds to the bytes."""

from typing import Any

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec, produce
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.protocol.produce import NodeEndpoint, PartitionOutcome
from tests.support.messages import filled

VERSIONS = range(produce.VERSION_MAX + 1)


def parsed(version: int, tree: dict[str, Any]) -> produce.ProduceRequest:
    frame = memoryview(bytearray(codec.encode_request(0, version, 1, "c", tree)))[4:]
    return produce.parse_request(version, parse_request_header(frame).body)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_the_codec_reads_them(version: int) -> None:
    for seed in range(20):
        tree = filled(0, "Request", version, seed)
        request = parsed(version, tree)
        assert request.transactional_id == tree.get("transactional_id")
        assert (request.acks, request.timeout_ms) == (tree["acks"], tree["timeout_ms"])
        assert [(t, p, bytes(r)) for t, p, r in request.partitions] == [
            (topic["name"], p["index"], p["records"] or b"")
            for topic in tree["topic_data"]
            for p in topic["partition_data"]
        ]


@pytest.mark.parametrize("version", [8, 9])
def test_records_are_written_where_they_were_received(version: int) -> None:
    tree = {"topic_data": [{"name": "t", "partition_data": [{"index": 1, "records": b"abcdef"}]}]}
    frame = bytearray(codec.encode_request(0, version, 1, "c", tree))
    ((_, _, records),) = produce.parse_request(version, parse_request_header(memoryview(frame)[4:]).body).partitions
    records[0:2] = b"XY"
    assert b"XYcdef" in frame


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_cut_short_are_refused(version: int) -> None:
    for seed in range(3):
        frame = memoryview(codec.encode_request(0, version, 1, "c", filled(0, "Request", version, seed)))[4:]
        body = parse_request_header(frame).body
        for size in {*range(0, len(body), max(1, len(body) // 100)), len(body) - 1}:
            with pytest.raises(CorruptData):
                produce.parse_request(version, body[:size])


@pytest.mark.parametrize("version", [9, 10, 11])
def test_tagged_fields_are_stepped_over(version: int) -> None:
    tagged = b"\1\x63\2ab"
    body = b"\0\xff\xff\0\0\x75\x30\2\2t\2\0\0\0\7\4rec" + tagged + tagged + tagged
    request = produce.parse_request(version, memoryview(body))
    assert [(t, p, bytes(r)) for t, p, r in request.partitions] == [("t", 7, b"rec")]


@pytest.mark.parametrize("place", range(3))
def test_very_many_tagged_fields_are_refused_at_once(place: int) -> None:
    """A hundred megabytes of them took six seconds of the event loop."""
    tags = [b"\0"] * 3
    tags[place] = b"\xff\xff\x7f" + bytes(4_000_000)
    body = b"\0\xff\xff\0\0\x75\x30\2\2t\2\0\0\0\7\4rec" + b"".join(tags)
    with pytest.raises(CorruptData, match="tagged fields"):
        produce.parse_request(9, memoryview(body))


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (8, b"\xff\xff\0\1\0\0\0\0\x7f\xff\xff\xff"),
        (8, b"\xff\xff\0\1\0\0\0\0\xff\xff\xff\xff"),
        (8, b"\xff\xff\0\1\0\0\0\0\0\0\0\1\xff\xff\0\0\0\0" + bytes(9)),
        (8, b"\xff\xff\0\1\0\0\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xfe"),
        (9, b"\0\0\1\0\0\0\0\0"),
        (9, b"\0\0\1\0\0\0\0\xff\xff\xff\xff\x0f"),
        (9, b"\0\0\1\0\0\0\0\2\0\1\0\0"),
        (9, b"\0\0\1\0\0\0\0\2\2t\0\0\0"),
        (12, bytes(20)),
        (-1, bytes(20)),
    ],
)
def test_impossible_lengths_are_refused(version: int, body: bytes) -> None:
    with pytest.raises(CorruptData):
        produce.parse_request(version, memoryview(body))


OUTCOMES = [
    PartitionOutcome("a", 0, 0, 12, 13, 14),
    PartitionOutcome("a", 1, 87, -1, -1, 3, [(0, "why"), (4, None)], "all refused", None),
    PartitionOutcome("b", 0, 6, current_leader=(2, 9)),
]
ENDPOINTS = [NodeEndpoint(2, "host", 9092, None), NodeEndpoint(3, "other", 9093, "rack")]


def tree_of(version: int) -> dict[str, Any]:
    def one(outcome: PartitionOutcome) -> dict[str, Any]:
        leader = outcome.current_leader
        return {
            "index": outcome.partition,
            "error_code": outcome.error_code,
            "base_offset": outcome.base_offset,
            "log_append_time_ms": outcome.log_append_time_ms,
            "log_start_offset": outcome.log_start_offset,
            "record_errors": [
                {"batch_index": index, "batch_index_error_message": text} for index, text in outcome.record_errors
            ],
            "error_message": outcome.error_message,
            "current_leader": {"leader_id": leader[0], "leader_epoch": leader[1]} if leader else {},
        }

    return {
        "responses": [
            {"name": "a", "partition_responses": [one(OUTCOMES[0]), one(OUTCOMES[1])]},
            {"name": "b", "partition_responses": [one(OUTCOMES[2])]},
        ],
        "throttle_time_ms": 55,
        "node_endpoints": [e._asdict() for e in ENDPOINTS],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_the_codec(version: int) -> None:
    made = produce.encode_response(version, 321, OUTCOMES, 55, ENDPOINTS)
    assert made == codec.encode_response(0, version, 321, tree_of(version))
    assert produce.encode_response(version, 1, []) == codec.encode_response(0, version, 1, {})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", ["t", "x" * 127, "x" * 249])
@pytest.mark.parametrize("error_code", [0, 3])
def test_the_answer_of_one_partition_is_that_of_the_codec(version: int, topic: str, error_code: int) -> None:
    outcome = PartitionOutcome(topic, 2**31 - 1, error_code, 2**63 - 1, -1, 7)
    partition = {
        "index": outcome.partition,
        "error_code": error_code,
        "base_offset": outcome.base_offset,
        "log_append_time_ms": -1,
        "log_start_offset": 7,
        "record_errors": [],
        "error_message": None,
    }
    tree = {"responses": [{"name": topic, "partition_responses": [partition]}], "throttle_time_ms": 250}
    made = produce.encode_response(version, 2**31 - 1, [outcome], 250)
    assert made == codec.encode_response(0, version, 2**31 - 1, tree)


@pytest.mark.parametrize(
    "told",
    [{"record_errors": [(0, None)]}, {"error_message": ""}, {"current_leader": (-1, -1)}],
)
@pytest.mark.parametrize("version", [9, 10, 12])
def test_what_one_partition_is_told_besides_is_in_its_answer(version: int, told: dict[str, Any]) -> None:
    outcome = PartitionOutcome("a", 0, 6)._replace(**told)
    plain = produce.encode_response(version, 1, [PartitionOutcome("a", 0, 6)])
    made = produce.encode_response(version, 1, [outcome])
    assert (made == plain) is ("current_leader" in told and version < 10)
