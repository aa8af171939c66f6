"""The hand-written Fetch against the codec, which kio holds to the bytes."""

import uuid
from typing import Any
from uuid import UUID

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec, fetch, fetch_client
from logyard.broker.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.protocol.produce import NodeEndpoint
from logyard.broker.protocol.schema import ZERO_UUID
from tests.support.messages import filled

VERSIONS = range(fetch.VERSION_MAX + 1)
IDS = [uuid.UUID(int=7), uuid.UUID(int=2**127 + 5)]
BIG = bytes(range(256)) * 40


def body_of(version: int, tree: dict[str, Any]) -> memoryview:
    frame = memoryview(codec.encode_request(1, version, 1, "c", tree))[4:]
    return parse_request_header(frame).body


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_the_codec_reads_them(version: int) -> None:
    for seed in range(20):
        body = body_of(version, filled(1, "Request", version, seed))
        ours, theirs = fetch.parse_request(version, body), codec.decode_request(1, version, body)
        replica = theirs.replica_state if version >= 15 else theirs
        assert ours.replica_id == replica.replica_id
        assert ours.replica_epoch == (replica.replica_epoch if version >= 15 else -1)
        assert ours.cluster_id == theirs.cluster_id
        assert (ours.max_wait_ms, ours.min_bytes, ours.max_bytes) == (
            theirs.max_wait_ms,
            theirs.min_bytes,
            theirs.max_bytes,
        )
        assert (ours.isolation, ours.session_id, ours.session_epoch, ours.rack_id) == (
            theirs.isolation_level,
            theirs.session_id,
            theirs.session_epoch,
            theirs.rack_id,
        )
        named = version < 13
        assert ours.partitions == [
            FetchPartition(
                t.topic if named else None,
                None if named else t.topic_id,
                p.partition,
                p.fetch_offset,
                p.partition_max_bytes,
                p.current_leader_epoch,
                p.last_fetched_epoch,
                p.log_start_offset,
            )
            for t in theirs.topics
            for p in t.partitions
        ]
        assert list(ours.forgotten) == [
            (t.topic if named else None, None if named else t.topic_id, p)
            for t in theirs.forgotten_topics_data
            for p in t.partitions
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_cut_short_are_refused(version: int) -> None:
    for seed in range(5):
        body = body_of(version, filled(1, "Request", version, seed))
        for size in range(0, len(body), max(1, len(body) // 100)):
            with pytest.raises(CorruptData):
                fetch.parse_request(version, body[:size])


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (4, bytes(16) + b"\0\x7f\xff\xff\xff"),
        (4, bytes(16) + b"\0\xff\xff\xff\xff"),
        (4, bytes(16) + b"\0\0\0\0\1\xff\xff\0\0\0\0"),
        (12, bytes(25) + b"\0"),
        (12, bytes(25) + b"\1\1\0\0"),
        (12, bytes(25) + b"\1\1\1\1\0\2ab"),
        (15, bytes(21) + b"\1\1\1\1\1\4abcd"),
        (18, bytes(60)),
        (-1, bytes(60)),
    ],
)
def test_impossible_lengths_are_refused(version: int, body: bytes) -> None:
    with pytest.raises(CorruptData):
        fetch.parse_request(version, memoryview(body))


def test_unknown_tagged_fields_are_stepped_over() -> None:
    tag = b"\1\x4d\3xyz"
    partition = bytes(4) + bytes(4) + bytes(8) + bytes(4) + bytes(8) + bytes(4) + tag
    body = bytes(21) + b"\2" + IDS[0].bytes + b"\2" + partition + tag + b"\1\1" + tag
    request = fetch.parse_request(17, memoryview(body))
    assert request.partitions == [FetchPartition(None, IDS[0], 0, 0, 0, 0, 0, 0)]


def test_very_many_tagged_fields_are_refused_at_once() -> None:
    many = b"\xff\xff\x7f" + bytes(4_000_000)
    partition = bytes(4) + bytes(4) + bytes(8) + bytes(4) + bytes(8) + bytes(4)
    of_partition = bytes(21) + b"\2" + IDS[0].bytes + b"\2" + partition + many
    for body in (of_partition, bytes(21) + b"\1\1\1" + many):
        with pytest.raises(CorruptData, match="tagged fields"):
            fetch.parse_request(17, memoryview(body))


FETCHED = [
    FetchedPartition("a", IDS[0], 0, 0, 100, b"tiny", 99, 1, None, -1),
    FetchedPartition("a", IDS[0], 1, 0, 100, memoryview(BIG), 99, 1, [(5, 6), (7, 8)], 3),
    FetchedPartition("b", IDS[1], 0, 0, 50, b"", 40, 0, [], -1, diverging_epoch=(4, 44)),
    FetchedPartition("b", IDS[1], 1, 6, -1, b"", -1, -1, None, -1, current_leader=(2, 9)),
    FetchedPartition("b", IDS[1], 2, 98, 1, BIG, 1, 1, None, -1, (1, 2), (3, 4), (5, 6)),
]
ENDPOINTS = [NodeEndpoint(2, "host", 9092, "rack"), NodeEndpoint(3, "other", 9093)]


def tree_of(partitions: list[FetchedPartition]) -> dict[str, Any]:
    def one(p: FetchedPartition) -> dict[str, Any]:
        tagged = {
            "diverging_epoch": p.diverging_epoch and dict(zip(("epoch", "end_offset"), p.diverging_epoch, strict=True)),
            "current_leader": p.current_leader
            and dict(zip(("leader_id", "leader_epoch"), p.current_leader, strict=True)),
            "snapshot_id": p.snapshot_id and dict(zip(("end_offset", "epoch"), p.snapshot_id, strict=True)),
        }
        return {
            "partition_index": p.partition,
            "error_code": p.error_code,
            "high_watermark": p.high_watermark,
            "last_stable_offset": p.last_stable_offset,
            "log_start_offset": p.log_start_offset,
            "aborted_transactions": None
            if p.aborted is None
            else [{"producer_id": a, "first_offset": b} for a, b in p.aborted],
            "preferred_read_replica": p.preferred_read_replica,
            "records": bytes(p.records),
        } | {name: value for name, value in tagged.items() if value}

    return {
        "throttle_time_ms": 3,
        "error_code": 70,
        "session_id": 12,
        "responses": [
            {"topic": "a", "topic_id": IDS[0], "partitions": [one(p) for p in partitions if p.topic == "a"]},
            {"topic": "b", "topic_id": IDS[1], "partitions": [one(p) for p in partitions if p.topic == "b"]},
        ],
        "node_endpoints": [e._asdict() for e in ENDPOINTS],
    }


def answer(version: int) -> list[bytes | bytearray | memoryview]:
    return fetch.encode_response(
        version, 321, FETCHED, throttle_ms=3, error_code=70, session_id=12, node_endpoints=ENDPOINTS
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_the_codec(version: int) -> None:
    assert b"".join(answer(version)) == codec.encode_response(1, version, 321, tree_of(FETCHED))
    assert b"".join(fetch.encode_response(version, 1, [])) == codec.encode_response(1, version, 1, {})


def test_large_records_are_not_copied() -> None:
    buffers = answer(12)
    assert buffers[1] is FETCHED[1].records
    assert buffers[3] is FETCHED[4].records
    assert len(buffers) == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_reads_what_a_leader_wrote(version: int) -> None:
    frame = memoryview(b"".join(answer(version)))[4:]
    response = fetch_client.decode_response(version, frame)
    assert response.correlation_id == 321
    assert (response.throttle_ms, response.error_code, response.session_id) == (
        3 if version >= 1 else 0,
        70 if version >= 7 else 0,
        12 if version >= 7 else 0,
    )
    for got, sent in zip(response.partitions, FETCHED, strict=True):
        assert isinstance(got.records, memoryview)
        assert got.records.obj is frame.obj
        assert got.records == sent.records
        kept = sent._replace(records=got.records)
        kept = kept._replace(topic_id=None) if version < 13 else kept._replace(topic=None)
        if version < 12:
            kept = kept._replace(diverging_epoch=None, current_leader=None, snapshot_id=None)
        if version < 11:
            kept = kept._replace(preferred_read_replica=-1)
        if version < 5:
            kept = kept._replace(log_start_offset=-1)
        if version < 4:
            kept = kept._replace(last_stable_offset=-1, aborted=[])
        assert got == kept


@pytest.mark.parametrize("version", [0, 4, 11, 12, 13, 15, 17])
def test_a_leader_reads_what_a_follower_wrote(version: int) -> None:
    named = version < 13
    topics: list[tuple[str | None, UUID | None]] = (
        [("a", None), ("b", None)] if named else [(None, IDS[0]), (None, IDS[1])]
    )
    asked = [
        FetchPartition(topic, topic_id, n, 10 + n, 1 << 20, 3, 2, 1) for topic, topic_id in topics for n in range(2)
    ]
    forgotten = [(*topics[0], 5), (*topics[0], 6)]
    request = FetchRequest(2, 500, 1, asked, 10 << 20, 0, 8, 9, forgotten, "rack", 77, None)
    frame = memoryview(fetch_client.encode_request(version, 5, "follower", request))
    header = parse_request_header(frame[4:])
    assert header[:4] == (1, version, 5, "follower")
    read = fetch.parse_request(version, header.body)
    assert (read.replica_id, read.replica_epoch) == (2, 77 if version >= 15 else -1)
    if version >= 12:
        assert read == request._replace(replica_epoch=read.replica_epoch)
    assert [p[:5] for p in read.partitions] == [p[:5] for p in asked]


def test_a_consumer_sends_no_replica_state() -> None:
    frame = fetch_client.encode_request(17, 5, "c", FetchRequest(-1, 0, 0, []))
    assert frame.endswith(b"\1\0")  # an empty rack, no tagged fields
    assert fetch.parse_request(17, parse_request_header(memoryview(frame)[4:]).body).replica_id == -1


def test_an_answer_without_records_is_read() -> None:
    frame = codec.encode_response(1, 13, 1, {"responses": [{"topic_id": ZERO_UUID, "partitions": [{"records": None}]}]})
    (partition,) = fetch_client.decode_response(13, memoryview(frame)[4:]).partitions
    assert (partition.records, partition.topic_id) == (b"", None)
