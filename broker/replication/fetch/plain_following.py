"""The follower's side of Fetch v17, without a step between its bytes and replication's values.

Hot path: one of each goes with nearly every record that is replicated. What is unusual (partitions to forget, tags,
aborted transactions, a divergence, …) is None here, and goes by the schema in `protocol/fetch_client.py`.
"""

import struct
from collections.abc import Callable, Sequence

from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.protocol import primitives
from logyard.broker.protocol.fetch import API_KEY
from logyard.broker.replication.events import FetchedPartition, FollowerFetch, FollowerFetchAnswer, PartitionFetch

VERSION = 17

# Size, API, version, correlation id; the client's id follows.
_HEAD = struct.Struct(">ihhi")
# The header's tags, wait, min bytes, max bytes, isolation, session and its epoch; the topics follow.
_FIELDS = struct.Struct(">Biiibii")
# Index, leader epoch, offset, last fetched epoch, log start offset, max bytes, tags.
_ASK = struct.Struct(">iiqiqiB")
# Nothing to forget, no rack, one tag: the replica's id and epoch, without tags.
_END = struct.Struct(">BBBBBiqB")
# Correlation id, the header's tags, throttle time, error, session.
_ANSWER = struct.Struct(">iBihi")
# Index, error, high watermark, stable offset, log start, aborted transactions (null), preferred replica, and the first
# byte of the records' length.
_PARTITION = struct.Struct(">ihqqqBiB")
_SIZE = struct.Struct(">i")


def question(asked: FollowerFetch, correlation_id: int, client_id: str) -> bytearray | None:
    """Encode the complete frame of a request; partitions of one topic that follow each other become one entry."""
    if not asked.uses_topic_ids or asked.forgotten:
        return None
    out = bytearray(_HEAD.pack(0, API_KEY, VERSION, correlation_id))
    out += primitives.string(client_id)
    try:
        out += _FIELDS.pack(
            0, asked.max_wait_ms, asked.min_bytes, asked.max_bytes, 0, asked.session_id, asked.session_epoch
        )
        if asked.partitions:
            _add_topics(out, asked.partitions)
        else:
            out.append(1)
        out += _END.pack(1, 1, 1, 1, 13, asked.replica_id, asked.replica_epoch, 0)
    except struct.error:
        return None  # the schema says what does not fit
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def _add_topics(out: bytearray, asks: Sequence[PartitionFetch]) -> None:
    topics, rows = bytearray(), bytearray()
    count = of_topic = 0
    number = asks[0].topic_id.int
    for ask in asks:
        if ask.topic_id.int != number:
            topics += number.to_bytes(16, "big") + primitives.uvarint(of_topic + 1) + rows
            topics.append(0)
            number, rows, of_topic = ask.topic_id.int, bytearray(), 0
            count += 1
        rows += _ASK.pack(
            ask.tp.partition,
            ask.leader_epoch,
            ask.offset,
            ask.last_fetched_epoch,
            ask.log_start_offset,
            ask.max_bytes,
            0,
        )
        of_topic += 1
    out += primitives.uvarint(count + 2)
    out += topics
    out += number.to_bytes(16, "big") + primitives.uvarint(of_topic + 1)
    out += rows
    out.append(0)


def answered(frame: memoryview, topic_name: Callable[[TopicId], str | None]) -> FollowerFetchAnswer | None:
    """Decode a leader's answer; partitions of topics that are no longer followed are left out.

    The records are slices of the frame.
    """
    found: list[FetchedPartition] = []
    try:
        _, tags, throttle_ms, error, session_id = _ANSWER.unpack_from(frame)
        topics, pos = primitives.read_uvarint(frame, _ANSWER.size)
        if tags or not topics:
            return None
        for _ in range(topics - 1):
            pos = _topic(frame, pos, topic_name, found)
            if not pos:
                return None
        if frame[pos]:
            return None
    except (*primitives.MALFORMED, CorruptData):
        return None  # the schema says what is wrong
    return FollowerFetchAnswer(ErrorCode(error) if error else ErrorCode.NONE, session_id, found, throttle_ms)


def _topic(
    frame: memoryview, pos: int, topic_name: Callable[[TopicId], str | None], found: list[FetchedPartition]
) -> int:
    """Decode the partitions of a topic; return the position after it, 0 for what is unusual."""
    end = len(frame)
    if pos + 16 > end:
        return 0
    topic_id = primitives.uuid_from(bytes(frame[pos : pos + 16]))
    topic = topic_name(topic_id)
    count, pos = primitives.read_uvarint(frame, pos + 16)
    for _ in range(count - 1):
        index, error, watermark, stable, start, aborted, _, size = _PARTITION.unpack_from(frame, pos)
        pos += _PARTITION.size
        if size > 127:
            size, pos = primitives.read_uvarint_rest(frame, pos, size)
        stop = pos + size - 1
        if aborted or not size or stop >= end or frame[stop]:
            return 0
        if topic is not None:
            code = ErrorCode(error) if error else ErrorCode.NONE
            tp = TopicPartition(topic, index)
            found.append(FetchedPartition(tp, code, watermark, stable, start, frame[pos:stop], topic_id=topic_id))
        pos = stop + 1
    return pos + 1 if count and not frame[pos] else 0
