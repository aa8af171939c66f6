"""A broker's logs for replication's tests: real PartitionLogs over an in-memory disk, without the store around them.

    logs = DiskLogs()
    log = logs.get_or_create(tp, None, TopicConfig(), is_new=True)
    log.append_as_leader(batch(3), 0, now_ms=NOW_MS)

`batch` is what a client sends, `stored` what a leader answers, `parse` and `contents` say what is there. A test plants
faults: `log.refuse` is raised by appends, `log.unreadable` by reads, `logs.failing[tp]` where a log is created, and
`logs.disk.cold` has every read go to a thread. `restart` opens all logs again, as after kill -9.
"""

from typing import Any, NamedTuple

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.append import AppendInfo
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.fetch import LogSlice
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import recovery
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.records import batch as records
from tests.support.logs import fetched, produced

NOW_MS = 1_600_000_000_000


class Stored(NamedTuple):
    """One batch of a log."""

    base: int
    epoch: int
    record_count: int
    data: bytes

    @property
    def last(self) -> int:
        return self.base + self.record_count - 1


def batch(count: int = 1, payload: bytes = b"v", timestamp: int = 0) -> memoryview:
    """A client's batch: `count` records of one value."""
    return produced([payload] * count, timestamp=timestamp)


def stored(base: int, epoch: int, payload: bytes = b"v", count: int = 1) -> bytes:
    """A batch as it lies in a leader's log."""
    return fetched(base, [payload] * count, epoch=epoch, timestamp=0)


def parse(data: bytes | bytearray | memoryview) -> list[Stored]:
    """Split a stretch of log into its batches."""
    view = memoryview(data)
    return [
        Stored(
            header.base_offset,
            header.partition_leader_epoch,
            header.last_offset_delta + 1,
            bytes(view[position : position + header.length]),
        )
        for position, header in records.iter_headers(view)
    ]


def payload_of(found: Stored) -> bytes | None:
    """The value of a batch's first record."""
    return records.records(memoryview(found.data), 0)[0].value


class ReplicaLog(PartitionLog):
    """A log with two faults to plant: what appends raise, and what reads raise."""

    refuse: Exception | None = None
    unreadable: Exception | None = None

    def append_as_leader(self, *args: Any, **named: Any) -> AppendInfo:
        if self.refuse is not None:
            raise self.refuse
        return super().append_as_leader(*args, **named)

    def append_as_follower(self, *args: Any, **named: Any) -> AppendInfo:
        if self.refuse is not None:
            raise self.refuse
        return super().append_as_follower(*args, **named)

    def read(self, *args: Any, **named: Any) -> LogSlice:
        if self.unreadable is not None:
            raise self.unreadable
        return super().read(*args, **named)


class DiskLogs:
    """All logs of one broker, surviving its restarts."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_directory("/logs")
        self.logs: dict[TopicPartition, ReplicaLog] = {}
        self.broken: set[TopicPartition] = set()  # that could not be opened
        self.is_complete = True  # no log directory is offline
        self.deleted: list[TopicPartition] = []
        self.checkpoint: dict[TopicPartition, int] = {}
        self.failing: dict[TopicPartition, Exception] = {}
        self._made = 0
        self._contents: dict[TopicPartition, tuple[tuple[ReplicaLog, int, int, int], list[Stored]]] = {}

    def get(self, tp: TopicPartition) -> ReplicaLog | None:
        return self.logs.get(tp)

    def get_or_create(
        self, tp: TopicPartition, topic_id: TopicId | None, config: TopicConfig, is_new: bool
    ) -> ReplicaLog:
        if tp in self.failing:
            raise self.failing[tp]
        log = self.logs.get(tp)
        if log is None:
            self._made += 1
            directory = f"/logs/{tp}.{self._made}"
            state = recovery.fresh(self.disk, directory, config, 0, NOW_MS)
            log = self.logs[tp] = ReplicaLog(self.disk, tp, directory, config, state, now_ms=NOW_MS)
            if topic_id is not None:
                log.assign_topic_id(topic_id)
        return log

    def delete(self, tp: TopicPartition) -> None:
        if tp in self.broken or tp in self.logs:
            self.broken.discard(tp)
            self.logs.pop(tp, None)
            self.deleted.append(tp)

    def set_aside(self, tp: TopicPartition) -> str:
        raise NotImplementedError("these logs stand alone: the store sets logs aside")

    def high_watermark_at_start(self, tp: TopicPartition) -> int:
        return self.checkpoint.get(tp, 0)

    def restart(self) -> None:
        """The process was killed: what was in the logs is there, watermarks come from the checkpoint."""
        self.disk.restart()
        for tp, old in list(self.logs.items()):
            known = recovery.Checkpointed(0, old.log_start_offset)
            state = recovery.load(self.disk, old.directory, old.config, known, now_ms=NOW_MS)
            self.logs[tp] = ReplicaLog(self.disk, tp, old.directory, old.config, state, now_ms=NOW_MS)

    def contents(self, tp: TopicPartition) -> list[Stored]:
        log = self.logs[tp]
        state = (log, log.segments.cuts, log.log_start_offset, log.log_end_offset)
        known = self._contents.get(tp)
        if known is not None and known[0] == state:
            return known[1]
        found: list[Stored] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found += parse(log.read(offset, 1 << 20, limit_offset=log.log_end_offset, min_one=True).load())
            offset = found[-1].last + 1
        self._contents[tp] = state, found
        return found
