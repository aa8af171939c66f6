"""The hand-written ListOffsets of one partition against the codec, which kio holds to the bytes."""

from typing import Any

import pytest

from logyard.broker.protocol import codec, list_offsets
from logyard.broker.protocol.header import parse_request_header
from tests.support.messages import filled

LIST_OFFSETS = 2
BY_HAND = range(4, 10)
NAMES = ["t", "", "näme", "x" * 126]


def body_of(version: int, tree: dict[str, Any]) -> memoryview:
    frame = memoryview(codec.encode_request(LIST_OFFSETS, version, 1, "c", tree))[4:]
    return parse_request_header(frame).body


def asking(*topics: tuple[str, int], isolation: int = 1) -> dict[str, Any]:
    """A request for so many partitions of each topic."""
    part = {"partition_index": 7, "current_leader_epoch": -1, "timestamp": -(1 << 40)}
    listed = [{"name": name, "partitions": [part] * count} for name, count in topics]
    return {"replica_id": 3, "isolation_level": isolation, "topics": listed}


@pytest.mark.parametrize("version", range(10))
def test_a_request_is_read_as_the_codec_reads_it_or_left_to_it(version: int) -> None:
    trees = [asking((name, 1)) for name in NAMES] + [filled(LIST_OFFSETS, "Request", version, n) for n in range(40)]
    read = 0
    for tree in trees:
        body = body_of(version, tree)
        ours, theirs = list_offsets.parse_one(version, body), codec.decode_request(LIST_OFFSETS, version, body)
        if ours is None:
            continue
        read += 1
        ((topic,), (part,)) = theirs.topics, theirs.topics[0].partitions
        head = (theirs.replica_id, theirs.isolation_level, topic.name)
        assert (*ours[:3], *ours[4:]) == (*head, part.partition_index, part.current_leader_epoch, part.timestamp)
    assert (read >= len(NAMES)) == (version in BY_HAND)


@pytest.mark.parametrize("version", BY_HAND)
def test_what_is_not_one_partition_is_left_to_the_codec(version: int) -> None:
    whole = bytes(body_of(version, asking(("t", 1))))
    others = [asking(), asking(("t", 0)), asking(("t", 2)), asking(("t", 1), ("u", 1)), asking(("x" * 127, 1))]
    bodies = [bytes(body_of(version, tree)) for tree in others[: 5 if version >= 6 else 4]]
    bodies += [whole + b"\0", *(whole[:end] for end in range(len(whole)))]
    bodies.append(whole.replace(b"t", b"\xff"))
    if version >= 6:
        bodies.append(whole[:-1] + b"\1\0\0")  # a tagged field that nobody knows
    for body in bodies:
        assert list_offsets.parse_one(version, memoryview(body)) is None


@pytest.mark.parametrize("version", BY_HAND)
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_written_as_the_codec_writes_it(version: int, name: str) -> None:
    asked = list_offsets.parse_one(version, body_of(version, asking((name, 1))))
    assert asked is not None
    part = {"partition_index": 7, "error_code": 78, "timestamp": 1 << 50, "offset": -1, "leader_epoch": 12}
    wanted = codec.encode_response(
        LIST_OFFSETS, version, 99, {"topics": [{"name": name, "partitions": [part]}], "throttle_time_ms": 0}
    )
    assert list_offsets.encode_one(version, 99, asked, 78, 1 << 50, -1, 12) == wanted
