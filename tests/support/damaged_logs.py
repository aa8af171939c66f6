"""Logs with something in them, and damage to their files."""

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from tests.support.logs import (
    DIRECTORY,
    NOW,
    new_log,
    produced,
)

SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=100)


def filled(disk: MemoryDisk, count: int = 40, config: TopicConfig = SMALL) -> PartitionLog:
    log = new_log(disk, config)
    for number in range(count):
        log.append_as_leader(produced([b"v%03d" % number] * 2, timestamp=NOW + number), number // 10, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    return log


def spoil(disk: MemoryDisk, path: str, position: int, data: bytes = b"\xff") -> None:
    disk.open(path, write=True).write_at(data, position)


def log_file(base: int) -> str:
    return f"{DIRECTORY}/{base:020d}.log"
