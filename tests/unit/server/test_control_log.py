"""What is logged of a controller's requests: the event that caused them, and the partitions, not too many."""

import structlog

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import StopReplica
from logyard.broker.server import control_log
from logyard.broker.server.request import Request, Session

REQUEST = Request(5, 4, 4711, "2", memoryview(b""), Session(1, "PLAINTEXT", "h"))
ORDER = StopReplica(controller_id=2, controller_epoch=7, broker_epoch=1, partitions=())
MANY = [TopicPartition("t", number) for number in range(1000)]


async def test_a_request_is_tied_to_its_event() -> None:
    with structlog.testing.capture_logs() as said:
        await control_log.say(REQUEST, "StopReplica", ORDER, ErrorCode.NONE, MANY, deleted=MANY[:1], made=[])
    [line] = said
    assert (line["event"], line["event_id"], line["controller"], line["controller_epoch"]) == (
        "StopReplica",
        4711,
        2,
        7,
    )
    assert line["count"] == 1000
    assert line["partitions"] == ["t-0..999"]
    assert line["deleted"] == ["t-0"]
    assert "made" not in line


async def test_what_was_refused_was_not_done() -> None:
    with structlog.testing.capture_logs() as said:
        await control_log.say(REQUEST, "StopReplica", ORDER, ErrorCode.STALE_CONTROLLER_EPOCH, MANY)
    assert said == []


async def test_a_line_stays_short_however_partitions_are_strewn() -> None:
    strewn = [TopicPartition(f"t{number % 7}", number) for number in range(1000)]
    with structlog.testing.capture_logs() as said:
        await control_log.say(REQUEST, "LeaderAndIsr", ORDER, ErrorCode.NONE, strewn)
    assert said[0]["count"] == 1000
    assert said[0]["partitions"] == [str(tp) for tp in strewn[: control_log.NAMED_MAX]]
