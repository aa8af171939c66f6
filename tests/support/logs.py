"""Logs on a disk in memory, and the batches to fill them with."""

from collections.abc import Sequence
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.listener import standalone_host
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import recovery
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.batch import Record

TP = TopicPartition("t", 0)
ROOT = "/data"
DIRECTORY = f"{ROOT}/t-0"
NOW = 1_700_000_000_000
SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=100)


def produced(
    values: Sequence[bytes | None], *, timestamp: int = NOW, key: bytes | None = b"k", **fields: Any
) -> memoryview:
    """A batch as a producer sends it: base offset 0, no leader epoch."""
    records = [Record(offset, timestamp, key, value) for offset, value in enumerate(values)]
    return memoryview(batch.build(records, base_offset=0, **fields))


def transactional(producer_id: int, sequence: int) -> memoryview:
    """A batch within a transaction, of one record."""
    return produced([b"x"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


def fetched(base: int, values: Sequence[bytes | None], *, epoch: int = 0, timestamp: int = NOW, **fields: Any) -> bytes:
    """A batch as a follower fetches it."""
    records = [Record(base + at, timestamp, b"k", value) for at, value in enumerate(values)]
    return bytes(batch.build(records, base_offset=base, leader_epoch=epoch, **fields))


def marker(kind: int, *, producer_id: int, producer_epoch: int = 0, coordinator_epoch: int = 0) -> memoryview:
    """A transaction marker as a coordinator writes it."""
    made = batch.build_control(
        kind,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW,
    )
    return memoryview(made)


def create_log(
    disk: Disk,
    tp: TopicPartition,
    directory: str,
    config: TopicConfig,
    *,
    now_ms: int = NOW,
    start_offset: int = 0,
    **kwargs: Any,
) -> PartitionLog:
    """A new log in a directory that is made, too; the rest goes to `PartitionLog`."""
    state = recovery.fresh(disk, directory, config, start_offset, now_ms)
    return PartitionLog(disk, tp, directory, config, state, now_ms=now_ms, **kwargs)


def new_log(
    disk: Disk | None = None, config: TopicConfig | None = None, *, start_offset: int = 0, **host: Any
) -> PartitionLog:
    """A new log, in a log directory that is durable; `host` gives fields of its `LogHost`."""
    disk = disk or MemoryDisk()
    disk.make_directory(ROOT)
    disk.sync_directory("/")
    shared = standalone_host(disk)._replace(**host)
    return create_log(disk, TP, DIRECTORY, config or TopicConfig(), start_offset=start_offset, host=shared)


def replace_segments(log: PartitionLog, new_files: Sequence[str], old_bases: Sequence[Sequence[int]]) -> None:
    """Replace closed segments by rewritten ones, durably: what a commit of a compact lease does in its steps."""
    log.swap_in(log.prepare_replacement(new_files, old_bases))
    log.disk.sync_directory(log.directory)


def opened(
    disk: Disk, config: TopicConfig | None = None, known: Checkpointed | None = None, notes: list[str] | None = None
) -> PartitionLog:
    """The log of DIRECTORY, loaded as at a broker's start; by default after an unclean end, from offset 0 on."""
    config = config or TopicConfig()
    said = [] if notes is None else notes
    state = recovery.load(disk, DIRECTORY, config, known or Checkpointed(), now_ms=NOW, note=said.append)
    return PartitionLog(disk, TP, DIRECTORY, config, state, now_ms=NOW)


def content(log: PartitionLog, start: int | None = None, max_bytes: int = 1 << 30) -> bytes:
    """All whole batches from an offset to the end, read as a consumer would, fetch by fetch."""
    offset = log.log_start_offset if start is None else start
    parts: list[bytes] = []
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes, limit_offset=log.log_end_offset, min_one=True)
        data = piece.load_nowait()
        data = piece.load() if data is None else data
        if not data:
            break
        *_, (position, last) = batch.iter_headers(data)
        parts.append(bytes(data[: position + last.length]))
        offset = last.last_offset + 1
    return b"".join(parts)


def offsets(data: bytes | memoryview) -> list[tuple[int, int]]:
    """(base offset, last offset) of every batch."""
    return [(header.base_offset, header.last_offset) for _, header in batch.iter_headers(data)]


def names(disk: Disk, directory: str = DIRECTORY) -> list[str]:
    """The names in a directory."""
    return [entry.name for entry in disk.list(directory)]


def fill(log: PartitionLog, count: int, values: int = 2, epoch: int = 0) -> None:
    """Append `count` batches of so many values; all of it is replicated."""
    for number in range(count):
        log.append_as_leader(produced([b"v%03d" % number] * values), epoch, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)


def refusal(call: object, *args: object, **kwargs: object) -> ErrorCode:
    """The error that a call is refused with."""
    with pytest.raises(ApiError) as refused:
        call(*args, **kwargs)  # type: ignore[operator]
    return refused.value.code
