"""The inputs of replication and its answers: the controller's requests, produce, fetch, look-ups.

Plain values; wire.py translates the versions of the protocol. Facts §9-§11.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from logyard.broker.errors import ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, TopicId, TopicPartition

CONSUMER_ID = -1  # the replica id of ordinary clients
DEBUG_CONSUMER_ID = -2  # reads to the log's end, as kafka-replica-verification does
EPOCH_DURING_DELETE = -2  # StopReplica of a topic being deleted: greater than every leader epoch
HIGH_WATERMARK = -1  # DeleteRecords: all committed records

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


class Isolation(IntEnum):
    """How far a reader may read: the isolation levels of the protocol, and LOG_END for replicas."""

    LOG_END = -1
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class LeaderAndIsrPartition(NamedTuple):
    """One partition of LeaderAndIsr; `partition_epoch` is the version of its state znode.

    A tuple, since a take-over makes one for each replica of a broker, and a frozen dataclass takes four times as long.
    """

    tp: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    controller_epoch: int = -1
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The controller's request to lead or follow. `broker_epoch` -1: the controller does not know it."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[LeaderAndIsrPartition]
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopReplicaPartition:
    """One partition of StopReplica; leader epoch -1 (old versions) and -2 (deletion) bypass the epoch check."""

    tp: TopicPartition
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class StopReplica:
    """The controller's request to stop replicas, and to delete those with `delete`."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[StopReplicaPartition]


@dataclass(frozen=True, slots=True)
class PartitionErrors:
    """The answer to LeaderAndIsr and StopReplica: the whole request's error, then one per partition."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)


@dataclass(slots=True)
class ProduceResult:
    """The result for one partition's batches; -1 means unknown."""

    tp: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()


@dataclass(slots=True)
class FetchParams:
    """The parameters of a whole fetch. Sizes in bytes.

    `only_leader`: followers, and consumers before v11. `min_one`: the first batch found is returned even if it is
    larger than the limits (v3+). `in_files`: records may be answered as where they are in their file.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    replica_id: int = CONSUMER_ID
    replica_epoch: int = -1
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    only_leader: bool = True
    min_one: bool = True
    rack: str = ""
    listener: str = ""
    in_files: bool = False

    @property
    def from_follower(self) -> bool:
        return self.replica_id >= 0


@dataclass(slots=True)
class PartitionFetch:
    """One partition of a fetch. -1 means "not given"; `log_start_offset` is the follower's own."""

    tp: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID


Records = bytes | bytearray | memoryview


@dataclass(slots=True)
class FetchedPartition:
    """One partition's answer. `diverging` is (epoch, end offset); `leader` (id, epoch) for a reader with an outdated
    leader; `aborted` lists (producer id, first offset), None unless read_committed.

    `records` may be a FilePart, which has a length and can only be sent, if the fetch allows that (`in_files`)."""

    tp: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Records = b""
    aborted: list[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    topic_id: TopicId = ZERO_TOPIC_ID


class OffsetQuery(NamedTuple):
    """One partition of ListOffsets; `timestamp` may be one of the negative constants above."""

    tp: TopicPartition
    timestamp: int
    leader_epoch: int = -1


class OffsetAnswer(NamedTuple):
    """Offset and timestamp are -1 if nothing was found."""

    tp: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class OldOffsetQuery(NamedTuple):
    """One partition of ListOffsets v0: at most `most` offsets before a timestamp."""

    tp: TopicPartition
    timestamp: int
    most: int


class OldOffsetAnswer(NamedTuple):
    """The offsets, the newest first."""

    tp: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochQuery:
    """One partition of OffsetForLeaderEpoch: where does `epoch` end in the leader's log?"""

    tp: TopicPartition
    epoch: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EpochAnswer:
    """Epoch and end offset; (-1, -1) if the leader does not know."""

    tp: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class DeleteRecordsResult:
    """`low_watermark`: the smallest log start offset of the live replicas; -1 with an error.

    `wanted`: the log's start on this leader, -1 where it was not moved.
    """

    tp: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    low_watermark: int = -1
    message: str | None = None
    wanted: int = -1

    @property
    def waits(self) -> bool:
        """Whether replicas are missing that have not deleted as much as this leader."""
        return self.error is ErrorCode.REQUEST_TIMED_OUT


@dataclass(frozen=True, slots=True)
class ReplicaLogInfo:
    """One replica in DescribeLogDirs. `offset_lag`: distance to the high watermark (for a future log, to the current
    log's end)."""

    tp: TopicPartition
    size: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirInfo:
    """One log directory in DescribeLogDirs; bytes are -1 if the system does not tell. `replicas` can be read once."""

    path: str
    error: ErrorCode
    replicas: Iterable[ReplicaLogInfo] = ()
    total_bytes: int = -1
    usable_bytes: int = -1


class FollowerFetch(NamedTuple):
    """A follower's request to its leader: Fetch v17 if every partition has a topic id, else v12 (facts §22)."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: Sequence[PartitionFetch]
    forgotten: Sequence[tuple[TopicPartition, TopicId]] = ()
    uses_topic_ids: bool = True


class FollowerFetchAnswer(NamedTuple):
    """The leader's answer. By topic id (v13+) the link fills in `topic_id` and the request's topic name."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[FetchedPartition]
    throttle_ms: int = 0
