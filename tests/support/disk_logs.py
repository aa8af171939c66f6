"""The real PartitionLog over an in-memory disk, kept as `MemoryLogs` keeps its lists."""

from typing import Any

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import recovery
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.records import batch as records
from tests.support.memory_log import Stored

NOW_MS = 1_600_000_000_000


def real_batch(count: int = 1, payload: bytes = b"v") -> memoryview:
    """A client's batch of `count` records with one value."""
    made = records.build([records.Record(n, NOW_MS, b"k", payload) for n in range(count)])
    return memoryview(bytearray(made))


def payload_of(stored: Stored) -> bytes | None:
    """The value of a batch's first record."""
    return records.records(memoryview(stored.data), 0)[0].value


class DiskLogs:
    """All logs of one broker; `restart` opens them again as after kill -9."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_directory("/logs")
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.checkpoint: dict[TopicPartition, int] = {}

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        return self.logs.get(tp)

    def get_or_create(
        self, tp: TopicPartition, topic_id: TopicId | None, config: TopicConfig, is_new: bool
    ) -> PartitionLog:
        log = self.logs.get(tp)
        if log is None:
            directory = f"/logs/{tp}"
            state = recovery.fresh(self.disk, directory, config, 0, NOW_MS)
            log = self.logs[tp] = PartitionLog(self.disk, tp, directory, config, state, now_ms=NOW_MS)
        return log

    def delete(self, tp: TopicPartition) -> None:
        del self.logs[tp]

    def set_aside(self, tp: TopicPartition) -> str:
        raise NotImplementedError("these logs stand alone: the store sets logs aside")

    def high_watermark_at_start(self, tp: TopicPartition) -> int:
        return self.checkpoint.get(tp, 0)

    def restart(self) -> None:
        self.disk.restart()
        for tp, old in list(self.logs.items()):
            known = recovery.Checkpointed(0, old.log_start_offset)
            state = recovery.load(self.disk, old.directory, old.config, known, now_ms=NOW_MS)
            self.logs[tp] = PartitionLog(self.disk, tp, old.directory, old.config, state, now_ms=NOW_MS)

    def contents(self, tp: TopicPartition) -> list[Stored]:
        log: Any = self.logs[tp]
        found: list[Stored] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(offset, 1 << 20, limit_offset=log.log_end_offset, min_one=True).load()
            for position, header in records.iter_headers(piece):
                data = bytes(piece[position : position + header.length])
                count = header.last_offset_delta + 1
                found.append(Stored(header.base_offset, header.partition_leader_epoch, count, 0, data))
            offset = found[-1].last + 1
        return found
