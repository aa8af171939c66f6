"""A log in a list: the part of PartitionLog and LogStore that replication uses, for tests that need no files.

A batch is `HEADER + payload`; real batches are for the tests that run over the real log.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.leader_epochs import EpochCache
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.records.header_validation import Bounds

HEADER = struct.Struct(">qiiqi")  # base offset, leader epoch, records, timestamp, payload size


def batch(count: int = 1, payload: bytes = b"v", timestamp: int = 0) -> memoryview:
    """A client's batch: `count` records that share one payload."""
    return memoryview(bytearray(HEADER.pack(0, -1, count, timestamp, len(payload)) + payload))


@dataclass(frozen=True)
class Stored:
    base: int
    epoch: int
    count: int
    timestamp: int
    data: bytes

    @property
    def last(self) -> int:
        return self.base + self.count - 1


def parse(data: bytes | memoryview) -> list[Stored]:
    """Split a stretch of log into its batches."""
    found, position = [], 0
    while position < len(data):
        base, epoch, count, timestamp, size = HEADER.unpack_from(data, position)
        end = position + HEADER.size + size
        found.append(Stored(base, epoch, count, timestamp, bytes(data[position:end])))
        position = end
    return found


@dataclass
class Info:
    first_offset: int
    last_offset: int
    append_time_ms: int = -1


@dataclass
class MemorySlice:
    data: bytes
    cold: bool

    @property
    def size(self) -> int:
        return len(self.data)

    def load_nowait(self) -> memoryview | None:
        return None if self.cold else memoryview(self.data)

    def load(self) -> memoryview:
        return memoryview(self.data)


@dataclass
class Aborted:
    producer_id: int
    first_offset: int


class MemoryLog:
    """One replica's log."""

    def __init__(self, tp: TopicPartition, topic_id: TopicId | None, config: TopicConfig) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.config = config
        self.batches: list[Stored] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.open_transaction: int | None = None
        self.aborted: list[Aborted] = []
        self.cold = False
        self.refuse: Exception | None = None
        self.unreadable: Exception | None = None
        self.epochs = EpochCache(log_end_offset=lambda: self.log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        first = self.open_transaction
        return self.high_watermark if first is None else min(first, self.high_watermark)

    @property
    def size(self) -> int:
        return sum(len(b.data) for b in self.batches)

    def append_as_leader(
        self, batches: memoryview, leader_epoch: int, *, now_ms: int, origin: Origin, validated_by: Bounds | None = None
    ) -> Info:
        if self.refuse is not None:
            raise self.refuse
        first = self.log_end_offset
        for b in parse(batches):
            data = HEADER.pack(self.log_end_offset, leader_epoch, b.count, b.timestamp, len(b.data) - HEADER.size)
            self._put(Stored(self.log_end_offset, leader_epoch, b.count, b.timestamp, data + b.data[HEADER.size :]))
        return Info(first, self.log_end_offset - 1)

    def validation_work(
        self, batches: memoryview, now_ms: int, validated_by: Bounds | None, *, always: bool = False
    ) -> None:
        """Nothing is compressed anew here."""
        return

    def append_as_follower(self, data: memoryview) -> Info:
        if self.refuse is not None:
            raise self.refuse
        first = self.log_end_offset
        for b in parse(data):
            assert b.base == self.log_end_offset, f"{self.tp}: {b.base} after {self.log_end_offset}"
            self._put(b)
        return Info(first, self.log_end_offset - 1)

    def _put(self, b: Stored) -> None:
        self.batches.append(b)
        self.log_end_offset = b.last + 1
        if self.epochs.latest is None or b.epoch > self.epochs.latest:
            self.epochs.assign(b.epoch, b.base)

    @property
    def pending_reload(self) -> None:
        """Nothing has to be read again after a cut."""

    def read(self, offset: int, max_bytes: int, *, limit_offset: int, min_one: bool) -> MemorySlice:
        if self.unreadable is not None:
            raise self.unreadable
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        data = b""
        for b in self.batches:
            if b.last < offset or b.last >= limit_offset:
                continue
            if len(data) + len(b.data) > max_bytes and (data or not min_one):
                break
            data += b.data
        return MemorySlice(data, self.cold)

    def truncate_to(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            return
        self.batches = [b for b in self.batches if b.last < offset]
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.epochs.truncate_from_end(offset)

    def truncate_fully(self, new_start: int) -> None:
        self.batches = []
        self.log_start_offset = self.log_end_offset = self.high_watermark = new_start
        self.epochs.clear()

    def advance_log_start(self, offset: int) -> None:
        assert offset <= self.high_watermark
        self.log_start_offset = max(self.log_start_offset, offset)
        self.epochs.truncate_from_start(offset)

    def timestamp_search(self, timestamp: int) -> Callable[[], tuple[int, int, int] | None]:
        return lambda: next(((b.timestamp, b.base, b.epoch) for b in self.batches if b.timestamp >= timestamp), None)

    def max_timestamp_search(self) -> Callable[[], tuple[int, int, int] | None]:
        best = max(self.batches, key=lambda b: (b.timestamp, -b.base), default=None)
        return lambda: (best.timestamp, best.base, best.epoch) if best is not None else None

    def set_high_watermark(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self.log_end_offset
        self.high_watermark = offset

    def assign_topic_id(self, topic_id: TopicId) -> None:
        if self.topic_id not in (None, topic_id):
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        self.topic_id = topic_id

    def aborted_transactions(self, start: int, end: int) -> list[Aborted]:
        return [a for a in self.aborted if a.first_offset < end]


class MemoryLogs:
    """All logs of one broker, surviving its restarts."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.deleted: list[TopicPartition] = []
        self.checkpoint: dict[TopicPartition, int] = {}
        self.failing: dict[TopicPartition, Exception] = {}
        self.on_create: Callable[[MemoryLog], None] = lambda log: None

    def get(self, tp: TopicPartition) -> MemoryLog | None:
        return self.logs.get(tp)

    def get_or_create(
        self, tp: TopicPartition, topic_id: TopicId | None, config: TopicConfig, is_new: bool
    ) -> MemoryLog:
        if tp in self.failing:
            raise self.failing[tp]
        log = self.logs.get(tp)
        if log is None:
            log = self.logs[tp] = MemoryLog(tp, topic_id, config)
            self.on_create(log)
        return log

    def delete(self, tp: TopicPartition) -> None:
        del self.logs[tp]
        self.deleted.append(tp)

    def set_aside(self, tp: TopicPartition) -> str:
        old = self.logs.pop(tp)
        self.get_or_create(tp, old.topic_id, old.config, True)
        return f"{tp}-stray"

    def high_watermark_at_start(self, tp: TopicPartition) -> int:
        return self.checkpoint.get(tp, 0)

    def restart(self) -> None:
        """The process was killed: what was in the logs is there, watermarks come from the checkpoint."""
        for log in self.logs.values():
            log.high_watermark = min(self.checkpoint.get(log.tp, 0), log.log_end_offset)

    def contents(self, tp: TopicPartition) -> list[Stored]:
        return self.logs[tp].batches


def payload_of(stored: Stored) -> bytes:
    """What `batch` was given."""
    return stored.data[HEADER.size :]
