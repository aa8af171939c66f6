"""Fetch v0 to v17, coded by hand: decodes requests and encodes answers; `fetch_client.py` has the follower's side.

Versions: 1 throttle time; 3 max bytes; 4 isolation, aborted transactions; 5 log start offset; 7 sessions (KIP-227);
9 current leader epoch; 11 rack (KIP-392); 12 flexible, last fetched epoch and diverging epoch (KIP-595);
13 topic ids (KIP-516); 15 the replica in a tagged field (KIP-903); 16 node endpoints (KIP-951); 17 directory id.
"""

import struct
import uuid
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import primitives
from logyard.broker.protocol.produce import NodeEndpoint
from logyard.broker.protocol.schema import ZERO_UUID

API_KEY = 1
VERSION_MAX = 17
_FLEXIBLE = 12
_TOPIC_IDS = 13
_REPLICA_STATE = 15
BYTES_MAX = PARTS_MAX = 0x7FFFFFFF
# Smaller record sets are copied into the answer: that is cheaper than writing one more buffer.
COPIED_BYTES_MAX = 4096

Records = bytes | bytearray | memoryview

_INT32 = struct.Struct(">i")
_RESPONSE_HEAD = struct.Struct(">ii")
_ERROR_SESSION = struct.Struct(">hi")
_ABORTED = struct.Struct(">qq")
_PARTITION_HEAD = struct.Struct(">ihq")
# All fields before the records, from v12 on, if there is no list of aborted transactions.
_PLAIN_HEAD = struct.Struct(">ihqqqBi")
_INT64 = struct.Struct(">q")
_REPLICA = struct.Struct(">iq")
# One tag with its number and size; no tags within.
_REPLICA_ALONE = struct.Struct(">BBBiqB")
_DIVERGING = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")
_SNAPSHOT = struct.Struct(">qi")


class FetchPartition(NamedTuple):
    """One partition of a Fetch request; `topic` is None from v13 on, `topic_id` before."""

    topic: str | None
    topic_id: uuid.UUID | None
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchRequest(NamedTuple):
    """A Fetch request; consumers have replica id -1. `forgotten` has (topic, topic id, partition)."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    partitions: list[FetchPartition]
    max_bytes: int = BYTES_MAX
    isolation: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[tuple[str | None, uuid.UUID | None, int]] = ()
    rack_id: str = ""
    replica_epoch: int = -1
    cluster_id: str | None = None


class FetchedPartition(NamedTuple):
    """One partition of a Fetch answer; fields that a version does not have are not written.

    `aborted` has (producer id, first offset), and is None for read_uncommitted. `diverging_epoch` is (epoch, end
    offset), `current_leader` (leader id, leader epoch), `snapshot_id` (end offset, epoch).
    """

    topic: str | None
    topic_id: uuid.UUID | None
    partition: int
    error_code: int
    high_watermark: int = -1
    records: Records = b""
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot_id: tuple[int, int] | None = None


# -- requests


def parse_request(version: int, body: memoryview, parts_max: int = PARTS_MAX) -> FetchRequest:
    """Decode the body of a Fetch request. Raises CorruptData, also for more than `parts_max` topics and partitions."""
    if not 0 <= version <= VERSION_MAX:
        raise CorruptData(f"Fetch has no version {version}")
    try:
        return _Reading(version, body, parts_max).request()
    except primitives.MALFORMED as error:
        raise primitives.malformed(f"FetchRequest v{version}", error) from error


def _head_of(version: int) -> struct.Struct:
    """The first fields: replica (to v14), wait, min bytes, max bytes (v3), isolation (v4), session and epoch (v7)."""
    codes = ">" if version >= _REPLICA_STATE else ">i"
    codes += "ii" + ("i" if version >= 3 else "") + ("b" if version >= 4 else "") + ("ii" if version >= 7 else "")
    return struct.Struct(codes)


def _partition_of(version: int) -> struct.Struct:
    """Index, leader epoch (v9), fetch offset, last fetched epoch (v12), log start offset (v5), max bytes."""
    codes = ">i" + ("i" if version >= 9 else "") + "q" + ("i" if version >= 12 else "")
    return struct.Struct(codes + ("q" if version >= 5 else "") + "i")


_HEADS = [_head_of(v) for v in range(VERSION_MAX + 1)]
_PARTITIONS = [_partition_of(v) for v in range(VERSION_MAX + 1)]


class _Reading:
    """A request that is being decoded: its body, and the position in it."""

    def __init__(self, version: int, body: memoryview, parts_max: int) -> None:
        self._version = version
        self._parts_left = parts_max
        self._flexible = version >= _FLEXIBLE
        self._body = body
        self._end = len(body)
        self._pos = 0

    def request(self) -> FetchRequest:
        version, head = self._version, _HEADS[self._version]
        values = list(head.unpack_from(self._body))
        self._pos = head.size
        replica_id = -1 if version >= _REPLICA_STATE else values.pop(0)
        max_wait_ms, min_bytes = values[:2]
        max_bytes = values[2] if version >= 3 else BYTES_MAX
        isolation = values[3] if version >= 4 else 0
        session_id, session_epoch = values[4:6] if version >= 7 else (0, -1)
        partitions = self._partitions()
        forgotten = self._forgotten() if version >= 7 else []
        rack_id = self._string("rack id") if version >= 11 else ""
        request = FetchRequest(
            replica_id,
            max_wait_ms,
            min_bytes,
            partitions,
            max_bytes,
            isolation,
            session_id,
            session_epoch,
            forgotten,
            rack_id,
        )
        return self._with_tags(request) if self._flexible else request

    def _length(self, name: str, size_min: int) -> int:
        """Read the length of an array whose elements have at least `size_min` bytes."""
        if self._flexible:
            length, self._pos = primitives.read_uvarint(self._body, self._pos)
            length -= 1
        else:
            (length,) = _INT32.unpack_from(self._body, self._pos)
            self._pos += 4
        if length < 0 or length * size_min > self._end - self._pos or length > self._parts_left:
            primitives.bad_length(name, length)
        self._parts_left -= length
        return length

    def _string(self, name: str) -> str:
        read = primitives.read_compact_string if self._flexible else primitives.read_string
        text, self._pos = read(self._body, self._pos, self._end, name)
        if text is None:
            primitives.bad_null(name)
        return text

    def _topic(self) -> tuple[str | None, uuid.UUID | None]:
        if self._version < _TOPIC_IDS:
            return self._string("topic"), None
        raw = bytes(self._body[self._pos : self._pos + 16])
        if len(raw) != 16:
            primitives.bad_length("topic id", 16)
        self._pos += 16
        return None, primitives.uuid_from(raw)

    def _skip_tags(self) -> None:
        if self._flexible:
            at = self._pos
            self._pos = at + 1 if self._body[at] == 0 else primitives.skip_tags(self._body, at, self._end)

    def _partitions(self) -> list[FetchPartition]:
        version, form = self._version, _PARTITIONS[self._version]
        found: list[FetchPartition] = []
        for _ in range(self._length("topics", 3)):
            topic, topic_id = self._topic()
            for _ in range(self._length("partitions", form.size)):
                values = form.unpack_from(self._body, self._pos)
                self._pos += form.size
                self._skip_tags()
                if version >= 12:
                    index, leader_epoch, offset, last_epoch, log_start, max_bytes = values
                elif version >= 9:
                    index, leader_epoch, offset, log_start, max_bytes = values
                    last_epoch = -1
                else:
                    index, offset, max_bytes = values[0], values[1], values[-1]
                    leader_epoch = last_epoch = -1
                    log_start = values[2] if version >= 5 else -1
                found.append(
                    FetchPartition(topic, topic_id, index, offset, max_bytes, leader_epoch, last_epoch, log_start)
                )
            self._skip_tags()
        return found

    def _forgotten(self) -> list[tuple[str | None, uuid.UUID | None, int]]:
        found: list[tuple[str | None, uuid.UUID | None, int]] = []
        for _ in range(self._length("forgotten topics", 3)):
            topic, topic_id = self._topic()
            count = self._length("forgotten partitions", 4)
            found += [(topic, topic_id, n) for n in struct.unpack_from(f">{count}i", self._body, self._pos)]
            self._pos += 4 * count
            self._skip_tags()
        return found

    def _with_tags(self, request: FetchRequest) -> FetchRequest:
        """Read the tagged fields: tag 0 is the cluster id, tag 1 (v15) the replica's id and epoch."""
        body = self._body
        if self._version >= _REPLICA_STATE and self._end - self._pos == _REPLICA_ALONE.size:
            *head, replica_id, replica_epoch, tags = _REPLICA_ALONE.unpack_from(body, self._pos)
            if head == [1, 1, _REPLICA.size + 1] and not tags:  # as every follower sends it
                return request._replace(replica_id=replica_id, replica_epoch=replica_epoch)
        count, pos = primitives.read_tag_count(body, self._pos)
        for _ in range(count):
            tag, pos = primitives.read_uvarint(body, pos)
            size, pos = primitives.read_uvarint(body, pos)
            stop = pos + size
            if stop > self._end:
                primitives.bad_length("tagged field", size)
            if tag == 0:
                cluster_id, at = primitives.read_compact_string(body, pos, stop, "cluster id")
                request = request._replace(cluster_id=cluster_id)
            elif tag == 1 and self._version >= _REPLICA_STATE:
                replica_id, replica_epoch = _REPLICA.unpack_from(body, pos)
                at = primitives.skip_tags(body, pos + _REPLICA.size, stop)
                request = request._replace(replica_id=replica_id, replica_epoch=replica_epoch)
            else:
                at = stop
            if at != stop:
                primitives.bad_length(f"tagged field {tag}", size)
            pos = stop
        return request


# -- answers


def encode_response(
    version: int,
    correlation_id: int,
    partitions: Iterable[FetchedPartition],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes | bytearray | memoryview]:
    """Encode the complete response frame. Returns the buffers to send, in their order.

    Partitions of one topic that follow each other become one entry. Record sets of more than COPIED_BYTES_MAX bytes are
    not copied: they are buffers of the list.
    """
    answer = _Writing(version, correlation_id)
    if version >= 1:
        answer.out += _INT32.pack(throttle_ms)
    if version >= 7:
        answer.out += _ERROR_SESSION.pack(error_code, session_id)
    by_topic = _by_topic(list(partitions))
    answer.length(len(by_topic))
    for of_topic in by_topic:
        answer.topic(of_topic[0])
        answer.length(len(of_topic))
        for partition in of_topic:
            answer.partition(partition)
        if answer.flexible:
            answer.out.append(0)
    if answer.flexible:
        primitives.append_node_endpoints(answer.out, node_endpoints if version >= 16 else ())
    return answer.finished()


def _by_topic(partitions: list[FetchedPartition]) -> list[list[FetchedPartition]]:
    if len(partitions) < 2:
        return [partitions] if partitions else []
    return [list(each) for _, each in groupby(partitions, key=_topic_of)]


def _topic_of(p: FetchedPartition) -> tuple[str | None, int]:
    return p.topic, -1 if p.topic_id is None else p.topic_id.int


class _Writing:
    """An answer that is being encoded: the complete buffers, and `out`, to which the next bytes are added."""

    def __init__(self, version: int, correlation_id: int) -> None:
        self.version = version
        self.flexible = version >= _FLEXIBLE
        self.out = bytearray(_RESPONSE_HEAD.pack(0, correlation_id))
        if self.flexible:
            self.out.append(0)
        self._buffers: list[Records] = [self.out]
        self._size = 0

    def length(self, length: int) -> None:
        self.out += primitives.uvarint(length + 1) if self.flexible else _INT32.pack(length)

    def topic(self, first: FetchedPartition) -> None:
        if self.version >= _TOPIC_IDS:
            self.out += (first.topic_id or ZERO_UUID).bytes
        elif self.flexible:
            self.out += primitives.compact_string(first.topic or "")
        else:
            self.out += primitives.string(first.topic or "")

    def partition(self, p: FetchedPartition) -> None:
        version = self.version
        if self.flexible and p.aborted is None:
            self.out += _PLAIN_HEAD.pack(
                p.partition,
                p.error_code,
                p.high_watermark,
                p.last_stable_offset,
                p.log_start_offset,
                0,
                p.preferred_read_replica,
            )
            self._records(p.records)
            self._tags(p)
            return
        self.out += _PARTITION_HEAD.pack(p.partition, p.error_code, p.high_watermark)
        if version >= 4:
            self.out += _INT64.pack(p.last_stable_offset)
            if version >= 5:
                self.out += _INT64.pack(p.log_start_offset)
            self._aborted(p.aborted)
            if version >= 11:
                self.out += _INT32.pack(p.preferred_read_replica)
        self._records(p.records)
        if self.flexible:
            self._tags(p)

    def _aborted(self, aborted: Sequence[tuple[int, int]] | None) -> None:
        if aborted is None:
            self.out += b"\0" if self.flexible else b"\xff\xff\xff\xff"
            return
        self.length(len(aborted))
        for producer_id, first_offset in aborted:
            self.out += _ABORTED.pack(producer_id, first_offset)
            if self.flexible:
                self.out.append(0)

    def _records(self, records: Records) -> None:
        size = len(records)
        self.length(size)
        if size <= COPIED_BYTES_MAX:
            self.out += records
            return
        self._buffers.append(records)
        self._size += size + len(self.out)
        self.out = bytearray()
        self._buffers.append(self.out)

    def _tags(self, p: FetchedPartition) -> None:
        """Write diverging epoch, current leader and snapshot id: tags 0, 1 and 2, each a struct without tags."""
        if p.diverging_epoch is None and p.current_leader is None and p.snapshot_id is None:
            self.out.append(0)
            return
        tags = b""
        if p.diverging_epoch is not None:
            tags += b"\0\x0d" + _DIVERGING.pack(*p.diverging_epoch) + b"\0"
        if p.current_leader is not None:
            tags += b"\1\x09" + _LEADER.pack(*p.current_leader) + b"\0"
        if p.snapshot_id is not None:
            tags += b"\2\x0d" + _SNAPSHOT.pack(*p.snapshot_id) + b"\0"
        count = (p.diverging_epoch is not None) + (p.current_leader is not None) + (p.snapshot_id is not None)
        self.out.append(count)
        self.out += tags

    def finished(self) -> list[Records]:
        """Write the size to the front and return the buffers."""
        self._size += len(self.out)
        _INT32.pack_into(self._buffers[0], 0, self._size - 4)
        return self._buffers
