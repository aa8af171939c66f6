"""The usual Fetch, coded by hand for replication's values, against the same by the schema: same bytes, same values."""

import uuid
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, TopicPartition
from logyard.broker.protocol import codec, fetch, fetch_client
from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.produce import NodeEndpoint
from logyard.broker.replication.events import FetchedPartition, FollowerFetch, FollowerFetchAnswer, PartitionFetch
from logyard.broker.replication.fetch import plain, plain_following, wire
from logyard.broker.server.file_answers import loaded
from tests.support.lengths import examples

SLOW = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
IDS = [uuid.UUID(int=n) for n in (0, 7, 2**127 + 5)]
NAMES = {IDS[1]: "seven", IDS[2]: "large"}

ids = st.sampled_from(IDS)
int8, int16, int32, int64 = (st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1) for n in (1, 2, 4, 8))
# Their number has one byte up to 126 of them.
aborted_ones = st.lists(st.tuples(int64, int64), max_size=2) | st.builds(lambda n: [(7, 1)] * n, st.integers(125, 127))
pairs = st.none() | st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))
partitions = st.builds(TopicPartition, st.sampled_from(["seven", "large", "x" * 130]), int32)
errors = st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
versions = st.sampled_from([12, 13, 14, 15, 16, 17])

asks = st.builds(PartitionFetch, partitions, int64, int32 | st.just(2**31), int32, int32, int64, ids)
questions = st.builds(
    FollowerFetch,
    int32,
    int64,
    int32,
    int32,
    int32 | st.just(2**31),
    int32,
    int32,
    st.lists(asks, max_size=4) | st.lists(asks, max_size=130),
    st.just(()) | st.lists(st.tuples(partitions, ids), max_size=2),
    st.booleans(),
)
fetched = st.builds(
    FetchedPartition,
    partitions,
    errors,
    int64,
    int64,
    int64,
    st.binary(max_size=200) | st.builds(bytes, st.sampled_from([126, 127, 4096, 4097, 20_000])),
    st.none() | st.just([]) | st.just([]) | aborted_ones,
    st.just(-1) | int32,
    pairs,
    pairs,
    ids,
)
asked = st.builds(FetchPartition, st.none(), ids, int32, int64, int32, int32, int32, int64)
requests = st.builds(
    FetchRequest,
    replica_id=st.just(-1) | int32,
    max_wait_ms=int32,
    min_bytes=int32,
    partitions=st.lists(asked, max_size=4) | st.lists(asked, max_size=130),
    max_bytes=int32,
    isolation=int8,
    session_id=int32,
    session_epoch=int32,
    forgotten=st.just(()) | st.lists(st.tuples(st.none(), ids, int32), max_size=2),
    rack_id=st.sampled_from(["", "", "rack"]),
    replica_epoch=st.just(-1) | int64,
    cluster_id=st.none() | st.just("cluster"),
)


def outcome(work: Any, *arguments: Any, **named: Any) -> Any:
    """What it returns, or the kind of its error."""
    try:
        return work(*arguments, **named)
    except (CorruptData, ValueError) as error:
        return type(error)


def spoilt(data: st.DataObject, frame: bytes) -> list[bytes]:
    """The frame, and others with a byte that is another one, and cut short."""
    found = [frame]
    for _ in range(4):
        wrong = bytearray(frame)
        if wrong:
            wrong[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        found += [bytes(wrong), bytes(wrong[: data.draw(st.integers(0, len(frame)))])]
    return found


# The follower's side


@SLOW
@given(questions, int32, st.text(max_size=5))
def test_a_follower_s_request_has_the_same_bytes(question: FollowerFetch, correlation_id: int, client: str) -> None:
    by_hand = outcome(wire.follower_frame, question, correlation_id, client)
    with patch.object(plain_following, "question", return_value=None):
        assert by_hand == outcome(wire.follower_frame, question, correlation_id, client)


def same_answer(frame: bytes) -> None:
    def read() -> Any:
        found = wire.follower_answer(17, memoryview(frame), NAMES.get)
        for each in found.partitions:
            each.records = bytes(each.records)
        return found

    by_hand = outcome(read)
    with patch.object(plain_following, "answered", return_value=None):
        assert by_hand == outcome(read)


@SLOW
@given(st.lists(fetched, max_size=6), int32, int16, int32, st.booleans(), st.data())
def test_a_leader_s_answer_has_the_same_values(
    answers: list[FetchedPartition], throttle_ms: int, code: int, session_id: int, tags: bool, data: st.DataObject
) -> None:
    pieces = fetch.encode_response(
        17,
        5,
        wire.fetched(answers, 17),
        throttle_ms=throttle_ms,
        error_code=code,
        session_id=session_id,
        node_endpoints=[NodeEndpoint(1, "h", 2, None)] if tags else (),
    )
    for frame in spoilt(data, b"".join(pieces)[4:]):
        same_answer(frame)


# The leader's side


@SLOW
@given(versions, requests, st.data())
def test_a_request_has_the_same_values(version: int, request: FetchRequest, data: st.DataObject) -> None:
    if version < 13:
        forgotten = [("seven", None, index) for _, _, index in request.forgotten]
        named = [
            each._replace(topic=NAMES.get(each.topic_id or ZERO_TOPIC_ID, "x" * 130), topic_id=None)
            for each in request.partitions
        ]
        request = request._replace(partitions=named, forgotten=forgotten)
    body = fetch_client.encode_request(version, 1, "c", request)[4 + 8 + 2 + 1 + 1 :]
    for each in spoilt(data, body):
        view = memoryview(each)
        by_hand = outcome(wire.asked, version, view, "PLAINTEXT", NAMES.get)
        with patch.object(plain, "asked", return_value=None):
            assert by_hand == outcome(wire.asked, version, view, "PLAINTEXT", NAMES.get)


@SLOW
@given(versions, st.lists(fetched, max_size=6) | st.lists(fetched, min_size=126, max_size=130), errors, int32)
def test_an_answer_has_the_same_bytes(
    version: int, answers: list[FetchedPartition], error: ErrorCode, session_id: int
) -> None:
    def made() -> bytes:
        return b"".join(loaded(wire.answer(version, 5, answers, error_code=int(error), session_id=session_id)))

    by_hand = made()
    with patch.object(plain, "answer", return_value=None):
        assert by_hand == made()


def test_the_usual_ones_are_coded_by_hand() -> None:
    tp = TopicPartition("seven", 0)
    ask = PartitionFetch(tp, 1, 2, topic_id=IDS[1])
    question = FollowerFetch(3, 4, 500, 1, 1 << 20, 0, 0, [ask, ask])
    answers = [FetchedPartition(tp, high_watermark=5, records=b"records", topic_id=IDS[1], aborted=[])]
    with (
        patch.object(codec, "encode_request", side_effect=AssertionError),
        patch.object(codec, "decode_response", side_effect=AssertionError),
        patch.object(fetch, "parse_request", side_effect=AssertionError),
        patch.object(fetch, "encode_response", side_effect=AssertionError),
    ):
        version, frame = wire.follower_frame(question, 1, "c")
        *_, asks, forgotten = wire.asked(version, memoryview(frame)[4 + 8 + 2 + 1 + 1 :], "PLAINTEXT", NAMES.get)
        assert (asks, forgotten) == ([ask, ask], [])
        answers[0].aborted = None
        sent = b"".join(loaded(wire.answer(version, 1, answers, error_code=0, session_id=9)))
        heard = wire.follower_answer(version, memoryview(sent)[4:], NAMES.get)
        assert heard == FollowerFetchAnswer(ErrorCode.NONE, 9, answers)
        for aborted in ([], [(7, 3)], [(7, n) for n in range(126)]):
            answers[0].aborted = aborted
            assert len(b"".join(loaded(wire.answer(12, 1, answers, error_code=0, session_id=9)))) > 50 + 17 * len(
                aborted
            )
