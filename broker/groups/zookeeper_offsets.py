"""The offsets of OffsetCommit v0 and OffsetFetch v0, in ZooKeeper below /consumers, without a coordinator (facts §16).

Requests to ZooKeeper are sent in chunks, so that a client with many partitions does not delay the broker's own
requests, and no request is longer than a server accepts. Each partition has its own error code.
"""

from collections.abc import Iterator, Mapping, Sequence

import structlog

from logyard.broker.errors import CorruptData, ErrorCode, LogyardError
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import consumers
from logyard.broker.znodes.ops import Create, OpResult, SetData, ZkCode, ZooKeeper
from logyard.broker.znodes.paths import ancestors

log = structlog.get_logger("logyard.groups")

_CHUNK_PATHS = 100
_CHUNK_BYTES = 400_000
# Tries, if znodes are deleted or created by others between two of our writes.
_TRIES = 3

NO_OFFSET = -1


async def commit(
    zk: ZooKeeper, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    """Write offsets, any int64. Returns NONE or UNKNOWN_SERVER_ERROR for each partition."""
    codes = dict.fromkeys(offsets, ErrorCode.UNKNOWN_SERVER_ERROR)
    for chunk in _chunks(group_id, offsets):
        try:
            codes |= await _commit(zk, {path: offsets[tp] for path, tp in chunk.items()}, chunk)
        except LogyardError as problem:
            log.warning("cannot write offsets to ZooKeeper", group=group_id[:100], error=str(problem))
    return codes


async def fetch(
    zk: ZooKeeper, group_id: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[ErrorCode, int]]:
    """Read offsets. Returns (error code, offset) for each partition.

    UNKNOWN_TOPIC_OR_PARTITION and -1: none is stored. UNKNOWN_SERVER_ERROR and -1: it cannot be read.
    """
    found = dict.fromkeys(partitions, (ErrorCode.UNKNOWN_SERVER_ERROR, NO_OFFSET))
    for chunk in _chunks(group_id, dict.fromkeys(partitions)):
        try:
            znodes = await zk.read(list(chunk))
        except LogyardError as problem:
            log.warning("cannot read offsets from ZooKeeper", group=group_id[:100], error=str(problem))
            continue
        for (path, tp), znode in zip(chunk.items(), znodes, strict=True):
            found[tp] = _stored(path, None if znode is None else znode.data)
    return found


def _stored(path: str, data: bytes | None) -> tuple[ErrorCode, int]:
    if data is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSET
    try:
        return ErrorCode.NONE, consumers.decode_offset(data, path)
    except CorruptData:
        return ErrorCode.UNKNOWN_SERVER_ERROR, NO_OFFSET


def _chunks(group_id: str, partitions: Mapping[TopicPartition, object]) -> Iterator[dict[str, TopicPartition]]:
    """Yield partitions by path in chunks, without those whose path ZooKeeper refuses (a group named `a//b`)."""
    chunk: dict[str, TopicPartition] = {}
    size = 0
    for tp in partitions:
        path = consumers.partition_path(group_id, consumers.OFFSETS, tp)
        if not consumers.is_path(path):
            continue
        length = len(path.encode())
        if chunk and (len(chunk) >= _CHUNK_PATHS or size + length > _CHUNK_BYTES):
            yield chunk
            chunk, size = {}, 0
        chunk[path] = tp
        size += length
    if chunk:
        yield chunk


async def _commit(
    zk: ZooKeeper, offsets: Mapping[str, int], chunk: Mapping[str, TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Set the znodes that exist, and create the others with those above them."""
    left = list(offsets)
    codes: dict[TopicPartition, ErrorCode] = {}
    for _ in range(_TRIES):
        written = await _each(zk, [SetData(path, consumers.encode_offset(offsets[path])) for path in left])
        missing = [path for path, result in zip(left, written, strict=True) if result.code is ZkCode.NO_NODE]
        if missing:
            # In separate multis, so that only those that exist are refused; they are carried out in their order.
            await _each(zk, [Create(path) for path in dict.fromkeys(a for path in missing for a in ancestors(path))])
        made = await _each(zk, [Create(path, consumers.encode_offset(offsets[path])) for path in missing])
        ended = dict(zip(left, written, strict=True)) | dict(zip(missing, made, strict=True))
        for path, result in ended.items():
            codes[chunk[path]] = ErrorCode.NONE if result.ok else ErrorCode.UNKNOWN_SERVER_ERROR
        left = [path for path, result in ended.items() if result.code in (ZkCode.NO_NODE, ZkCode.NODE_EXISTS)]
        if not left:
            break
    return codes


async def _each(zk: ZooKeeper, ops: Sequence[SetData | Create]) -> list[OpResult]:
    """Carry out independent operations, in their order."""
    return [result for (result,) in await zk.pipeline([[op] for op in ops])] if ops else []
