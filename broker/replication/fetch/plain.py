"""The usual Fetch of versions 12 to 17 as it is served, without a step between its bytes and replication's values.

Hot path: one of each goes with nearly every record that is consumed or replicated. What is unusual (tags, more than 126
topics or aborted transactions, a divergence, …) is None here, and goes by `protocol/fetch.py`.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from logyard.broker.log.file_part import FilePart
from logyard.broker.model import ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.protocol import primitives
from logyard.broker.protocol.fetch import COPIED_BYTES_MAX
from logyard.broker.replication.events import (
    FetchedPartition,
    FetchParams,
    Isolation,
    PartitionFetch,
    Records,
)
from logyard.broker.replication.fetch.session_keys import SessionKey

FIRST, BY_ID, REPLICA_IN_TAG = 12, 13, 15

Asked = tuple[FetchParams, int, int, list[PartitionFetch], list[SessionKey]]
"""The parameters, session id and epoch, partitions asked, keys forgotten."""

# Replica (to v14), wait, min bytes, max bytes, isolation, session, its epoch, number of topics.
_OLDER_HEAD, _HEAD = struct.Struct(">iiiibiiB"), struct.Struct(">iiibiiB")
# Index, leader epoch, offset, last fetched epoch, log start offset, max bytes, tags.
_ASK = struct.Struct(">iiqiqiB")
# A count of tags, the tag with its size, the replica's id and epoch, and its tags.
_REPLICA = struct.Struct(">BBBiqB")
# Size, correlation id, the header's tags, throttle time, error, session, number of topics.
_ANSWER = struct.Struct(">iiBihiB")
# Index, error, high watermark, stable offset, log start, number of aborted transactions, preferred replica.
_PARTITION = struct.Struct(">ihqqqBi")
# An aborted transaction, which stands before the preferred replica: producer id, first offset, tags.
_ABORTED, _PREFERRED_SIZE = struct.Struct(">qqB"), 4
_BAD = (struct.error, IndexError, UnicodeDecodeError)
# What one byte of a compact length can say: one more than the length.
_SMALL = 127
_ISOLATIONS = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
_new = tuple.__new__  # a NamedTuple's own is Python


def asked(version: int, body: memoryview, listener: str, topic_name: Callable[[TopicId], str | None]) -> Asked | None:
    """Decode the body of a request; a partition of an unknown topic id has the empty name."""
    try:
        replica_id = replica_epoch = -1
        if version >= REPLICA_IN_TAG:
            wait_ms, bytes_min, bytes_max, isolation, session_id, epoch, topics = _HEAD.unpack_from(body)
            pos = _HEAD.size
        else:
            replica_id, wait_ms, bytes_min, bytes_max, isolation, session_id, epoch, topics = _OLDER_HEAD.unpack_from(
                body
            )
            pos = _OLDER_HEAD.size
        if not 0 < topics <= _SMALL:
            return None
        asks: list[PartitionFetch] = []
        if topics > 1:
            pos = _asks(version, body, pos, topics - 1, asks, topic_name)
        if not pos or body[pos] != 1 or body[pos + 1] != 1:
            return None  # it has partitions to forget, or a rack
        pos += 2
        if version >= REPLICA_IN_TAG and len(body) - pos == _REPLICA.size:
            tags, tag, size, replica_id, replica_epoch, inner = _REPLICA.unpack_from(body, pos)
            if tags != 1 or tag != 1 or size != 13 or inner:
                return None
        elif body[pos]:
            return None
    except _BAD:
        return None
    follower = replica_id >= 0
    params = FetchParams(
        wait_ms,
        bytes_min,
        bytes_max,
        replica_id,
        replica_epoch,
        Isolation.LOG_END if follower else _ISOLATIONS[isolation > 0],
        follower,
        True,
        "",
        listener,
    )
    return params, session_id, epoch, asks, []


def _asks(
    version: int,
    body: memoryview,
    pos: int,
    topics: int,
    asks: list[PartitionFetch],
    topic_name: Callable[[TopicId], str | None],
) -> int:
    """Decode the partitions of so many topics; return the position after them, 0 for what is unusual."""
    topic_id = ZERO_TOPIC_ID
    for _ in range(topics):
        if version >= BY_ID:
            following = pos + 16
            if following >= len(body):
                return 0
            topic_id = primitives.uuid_from(bytes(body[pos:following]))
            topic = topic_name(topic_id) or ""
        else:
            length = body[pos]
            if not 0 < length < _SMALL:
                return 0
            following = pos + length
            topic = str(body[pos + 1 : following], "utf-8")
        count = body[following]  # an IndexError if the name is cut short
        pos = following + 1
        if not 0 < count <= _SMALL:
            return 0
        for _ in range(count - 1):
            index, leader_epoch, offset, last_epoch, log_start, bytes_max, tags = _ASK.unpack_from(body, pos)
            if tags:
                return 0
            tp = _new(TopicPartition, (topic, index))
            asks.append(PartitionFetch(tp, offset, bytes_max, leader_epoch, last_epoch, log_start, topic_id))
            pos += _ASK.size
        if body[pos]:
            return 0
        pos += 1
    return pos


def answer(
    version: int, correlation_id: int, answers: Sequence[FetchedPartition], error_code: int, session_id: int
) -> list[Records | FilePart] | None:
    """Encode the complete frame of an answer, as `protocol.fetch.encode_response` does."""
    by_id = version >= BY_ID
    out = head = counted = bytearray(_ANSWER.size)
    buffers: list[Records | FilePart] = [out]
    # `count` is what stands for the number of partitions of the topic `last`: one more than they are.
    size = topics = count = count_at = 0
    last: int | str | None = None
    for each in answers:
        aborted = each.aborted
        if each.diverging is not None or each.leader is not None or (aborted and len(aborted) >= _SMALL):
            return None
        tp, records = each.tp, each.records
        key = each.topic_id.int if by_id else tp.topic
        if key != last:
            if count:
                counted[count_at] = count
                out.append(0)
            out += _topic(key)
            last, counted, count_at = key, out, len(out) - 1
            topics += 1
            count = 1
        count += 1
        if count > _SMALL:
            return None
        length = len(records)
        out += _PARTITION.pack(
            tp.partition,
            each.error,
            each.high_watermark,
            each.last_stable_offset,
            each.log_start_offset,
            0 if aborted is None else len(aborted) + 1,
            each.preferred_read_replica,
        )
        if aborted:
            out[-_PREFERRED_SIZE:-_PREFERRED_SIZE] = b"".join([_ABORTED.pack(*one, 0) for one in aborted])
        out += _length(length + 1)
        if length <= COPIED_BYTES_MAX:
            out += records
        else:
            buffers.append(records)
            size += length + len(out)
            out = bytearray()
            buffers.append(out)
        out.append(0)
    if topics >= _SMALL:
        return None
    if count:
        counted[count_at] = count
        out += b"\0\0"
    else:
        out.append(0)
    _ANSWER.pack_into(head, 0, size + len(out) - 4, correlation_id, 0, 0, error_code, session_id, topics + 1)
    return buffers


@lru_cache(maxsize=4096)
def _topic(key: int | str) -> bytes:
    """Return what begins a topic: its id or name, cached, as the same few are written often, and a byte for a count."""
    return (key.to_bytes(16, "big") if isinstance(key, int) else primitives.compact_string(key)) + b"\0"


_length = lru_cache(maxsize=1024)(primitives.uvarint)
