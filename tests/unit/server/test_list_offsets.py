"""ListOffsets of one partition, which is answered from its bytes, says what the way of all others says."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from logyard.broker.errors import ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.records import batch
from logyard.broker.server.handlers import list_offsets
from logyard.broker.server.request import Request, Session
from tests.support.inside_broker import InsideBroker

pytestmark = pytest.mark.asyncio(loop_scope="module")
PRODUCE, LIST_OFFSETS, ELECT_LEADERS = 0, 2, 43
BEGUN_MS = 1_700_000_000_000
LATER_THAN_ALL = BEGUN_MS + 1_000_000
TIMES = [-6, -5, -4, -3, -2, -1, 0, BEGUN_MS + 2_001, BEGUN_MS + 7_000, LATER_THAN_ALL]
UNSUPPORTED, UNKNOWN = int(ErrorCode.UNSUPPORTED_VERSION), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    """A broker with ten batches of three records in `t-0`, each a second later; every other one is packed."""
    async with InsideBroker(tmp_path_factory.mktemp("broker")) as started:
        await started.create_topic("t", 2)
        for number in range(10):
            times = [BEGUN_MS + number * 1000 + n for n in range(3)]
            records = [batch.Record(n, time, None, b"v") for n, time in enumerate(times)]
            part = {"index": 0, "records": bytes(batch.build(records, compression=number % 2))}
            tree = {"acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": "t", "partition_data": [part]}]}
            answer = await answered(started, codec.encode_request(PRODUCE, 8, 1, "c", tree))
            (topic,) = codec.decode_response(PRODUCE, 8, memoryview(answer)[4:])[1].responses
            assert topic.partition_responses[0].error_code == 0
        yield started


async def answered(broker: InsideBroker, frame: bytes) -> bytes:
    answer: Any = broker.components.dispatcher(Session(1, "PLAINTEXT", "127.0.0.1"), memoryview(bytearray(frame))[4:])
    if isinstance(answer, asyncio.Future):
        answer = await answer
    return b"".join(answer) if isinstance(answer, list) else bytes(answer)


def part(timestamp: int, index: int = 0, epoch: int = -1) -> dict[str, int]:
    return {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}


def request(version: int, topics: list[dict[str, Any]], replica: int = -1, isolation: int = 0) -> bytes:
    tree = {"replica_id": replica, "isolation_level": isolation, "topics": topics}
    return bytes(codec.encode_request(LIST_OFFSETS, version, 5, "c", tree))


async def told(broker: InsideBroker, version: int, topics: list[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    frame = await answered(broker, request(version, topics))
    message = codec.decode_response(LIST_OFFSETS, version, memoryview(frame)[4:])[1]
    return [(topic.name, [(p.error_code, p.offset) for p in topic.partitions]) for topic in message.topics]


@pytest.mark.parametrize("version", range(4, 10))
async def test_it_says_what_all_others_are_told(broker: InsideBroker, version: int) -> None:
    """A byte behind the last field is ignored, as in Kafka; such a request is decoded by the codec."""
    asked = itertools.product(TIMES, [("t", 0), ("t", 1), ("t", 9), ("none", 0)], [-1, 0, 7], [-1, -2, 2], [0, 1])
    seen = set()
    for timestamp, (topic, index), epoch, replica, isolation in asked:
        topics = [{"name": topic, "partitions": [part(timestamp, index, epoch)]}]
        frame = request(version, topics, replica, isolation)
        found = await answered(broker, frame)
        assert found == await answered(broker, frame + b"\0"), (topics, replica, isolation)
        seen.add(found)
    assert len(seen) > 15


@pytest.mark.parametrize("version", [4, 9])
async def test_one_partition_takes_the_short_way(
    broker: InsideBroker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    topics = [{"name": "t", "partitions": [part(BEGUN_MS + 2_001)]}]
    found = await told(broker, version, topics)
    monkeypatch.setattr(codec, "decode_request", None)  # the long way's
    assert await answered(broker, request(version, topics))
    assert found == [("t", [(0, 7)])]


async def test_a_thread_that_fails_is_told_of(broker: InsideBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(work: object, outcome: object) -> Any:
        lost = asyncio.get_running_loop().create_future()
        lost.set_exception(OSError("gone"))
        return lost

    monkeypatch.setattr(broker.components.replicas.hosted, "in_record_thread", failing)
    found = await told(broker, 9, [{"name": "t", "partitions": [part(BEGUN_MS + 1_000)]}])
    assert found == [("t", [(int(ErrorCode.KAFKA_STORAGE_ERROR), -1)])]


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 0), (-2, 0), (-3, 7), (-4, 8), (-5, 9), (-6, 10), (-(1 << 63), 10)]
)
async def test_a_version_has_the_timestamps_that_it_has_in_kafka(
    broker: InsideBroker, timestamp: int, since: int
) -> None:
    for version, count in itertools.product(range(10), (1, 2)):
        [(_, found)] = await told(
            broker, version, [{"name": "t", "partitions": [part(timestamp, n) for n in range(count)]}]
        )
        # In version 0 they are times, before which there is nothing.
        assert [code for code, _ in found] == [0 if version >= since or not version else UNSUPPORTED] * count


@pytest.mark.parametrize("count", [1, 300])
async def test_version_0_has_several_offsets(broker: InsideBroker, count: int) -> None:
    times = [(-1, 9, [30, 0]), (-1, 1, [30]), (-2, 9, [0]), (1 << 60, 9, [30, 0]), (1, 9, []), (-9, 9, [])]
    for timestamp, most, expected in times:
        others = [{"name": f"no-{number}", "partitions": [part(-1)]} for number in range(1, count)]
        asked = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": most}
        frame = await answered(broker, request(0, [*others, {"name": "t", "partitions": [asked]}]))
        *refused, topic = codec.decode_response(LIST_OFFSETS, 0, memoryview(frame)[4:])[1].topics
        assert [(p.error_code, p.old_style_offsets) for p in topic.partitions] == [(0, expected)]
        assert {(p.error_code, *p.old_style_offsets) for each in refused for p in each.partitions} <= {(UNKNOWN,)}


@pytest.mark.parametrize("version", [0, 1, 5, 9])
async def test_topics_stay_as_they_were_named(broker: InsideBroker, version: int) -> None:
    """Without partitions, and apart where a topic is named again, as in Kafka."""
    topics = [("t", []), ("none", []), ("t", [part(-2)]), ("none", [part(-2)]), ("t", [part(-2, 1)])]
    asked = [{"name": name, "partitions": parts} for name, parts in topics]
    found = await told(broker, version, asked)
    assert [(name, [code for code, _ in parts]) for name, parts in found] == [
        ("t", []),
        ("none", []),
        ("t", [0]),
        ("none", [UNKNOWN]),
        ("t", [0]),
    ]


async def test_topics_stay_as_they_were_named_in_a_large_request(broker: InsideBroker) -> None:
    asked = [{"name": "t", "partitions": [part(-2)] * (number == 300)} for number in range(1000)]
    found = await told(broker, 6, asked)
    assert found == [("t", [(0, 0)] if number == 300 else []) for number in range(1000)]


async def test_more_times_than_are_looked_up_at_once(broker: InsideBroker) -> None:
    known = [{"name": "t", "partitions": [part(BEGUN_MS + 4_000), part(BEGUN_MS, 1)]}]
    others = [{"name": f"no-{number}", "partitions": [part(1)]} for number in range(9)]
    none, found = [(str(other["name"]), [(UNKNOWN, -1)]) for other in others], [("t", [(0, 12), (0, -1)])]
    assert await told(broker, 7, others + known) == none + found
    assert await told(broker, 7, known + others) == found + none


async def test_what_was_asked_is_let_go_in_portions(broker: InsideBroker) -> None:
    """To free it at once would hold the loop up."""
    names = [f"no-{number}" for number in range(2000)]
    body = codec.encode_request(
        LIST_OFFSETS,
        6,
        5,
        "c",
        {"replica_id": -1, "isolation_level": 0, "topics": [{"name": n, "partitions": [part(1)]} for n in names]},
    )
    frame = memoryview(body)[4 + 8 + 3 + 1 :]
    message = codec.decode_request(LIST_OFFSETS, 6, frame)
    session = Session(1, "PLAINTEXT", "127.0.0.1")
    asked: Any = Request(LIST_OFFSETS, 6, 5, "c", frame, session)
    fields: Any = await list_offsets.handle(broker.components.services, asked, message)  # type: ignore[misc]
    assert [topic["name"] for topic in fields["topics"]] == names
    assert message.topics == []


@pytest.mark.parametrize("isolation", [-1, 2])
async def test_an_isolation_level_that_there_is_not_is_refused(broker: InsideBroker, isolation: int) -> None:
    """By -1 clients could ask for the end of the log, which is for replicas."""
    frame = request(5, [{"name": "t", "partitions": [part(-1)]}], isolation=isolation)
    with capture_logs() as logged:
        answer = await answered(broker, frame)
    (topic,) = codec.decode_response(LIST_OFFSETS, 5, memoryview(answer)[4:])[1].topics
    assert [p.error_code for p in topic.partitions] == [int(ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert logged == [], "a client would fill the log with where it was raised"


async def test_an_election_type_that_there_is_not_is_refused(broker: InsideBroker) -> None:
    topics = [{"topic": "t", "partitions": [0]}]
    fields = {"election_type": 9, "topic_partitions": topics, "timeout_ms": 0}
    with capture_logs() as logged:
        answer = await answered(broker, codec.encode_request(ELECT_LEADERS, 1, 1, "c", fields))
    found = codec.decode_response(ELECT_LEADERS, 1, memoryview(answer)[4:])[1]
    assert found.error_code == int(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert logged == []
