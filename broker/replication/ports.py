"""The ports of replication: logs, time, other brokers, the controller.

`Logs` is the part of the log registry that is used; twins for tests are in tests/support.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode, LogyardError
from logyard.broker.log.file_part import FilePart
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.replication.events import (
    EpochAnswer,
    EpochQuery,
    FollowerFetch,
    FollowerFetchAnswer,
    OffsetAnswer,
    OffsetQuery,
)

T = TypeVar("T")


class EpochIndex(Protocol):
    """The leader-epoch cache of a log (log.epochs)."""

    @property
    def latest(self) -> int | None: ...
    def end_offset_for(self, epoch: int) -> tuple[int, int]: ...
    def epoch_of(self, offset: int) -> int | None: ...
    def assign(self, epoch: int, start: int, /) -> object: ...
    def truncate_from_end(self, offset: int) -> object: ...
    def clear(self) -> object: ...


class Slice(Protocol):
    """A piece of a log: `size` bytes, possibly not in the page cache."""

    @property
    def size(self) -> int: ...
    def load_nowait(self) -> memoryview | None: ...
    def in_file(self) -> FilePart | None: ...
    def load(self) -> memoryview: ...
    def warm(self) -> None: ...
    def aborted(self) -> list[AbortedTxn] | None: ...


class Logs(Protocol):
    """All logs of this broker (log.registry.LogRegistry). Raises StorageError if a directory failed."""

    @property
    def is_complete(self) -> bool: ...
    def get(self, tp: TopicPartition) -> PartitionLog | None: ...
    def get_or_create(
        self, tp: TopicPartition, topic_id: TopicId | None, config: TopicConfig, is_new: bool
    ) -> PartitionLog: ...
    def delete(self, tp: TopicPartition) -> object: ...
    def set_aside(self, tp: TopicPartition) -> str: ...
    def high_watermark_at_start(self, tp: TopicPartition) -> int: ...


@dataclass(frozen=True, slots=True)
class IsrChangeResult:
    """The controller's answer for one partition; the state fields are set only if `error` is NONE."""

    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    recovering: bool = False


class IsrChanges(Protocol):
    """How a leader requests another ISR: AlterPartition (broker/client/alter_partition.py)."""

    def submit(
        self,
        tp: TopicPartition,
        topic_id: TopicId | None,
        leader_epoch: int,
        new_isr: tuple[int, ...],
        partition_epoch: int,
        callback: Callable[[IsrChangeResult], None],
        broker_epochs: Mapping[int, int] | None = None,
    ) -> None:
        """Send the change, and again until the controller answers for this partition; then call back once, never from
        inside `submit`.

        `broker_epochs` are those with which the followers fetched (-1 unknown), for the controller to check (KIP-903).
        """
        ...


class LinkError(LogyardError):
    """The other broker could not be reached (refused, broken, timed out): try again later."""


class FetchLink(Protocol):
    """The connection from a follower to one leader broker. Every call may raise OSError, TimeoutError or LinkError."""

    async def fetch(self, request: FollowerFetch) -> FollowerFetchAnswer: ...
    async def offsets_for_leader_epoch(self, queries: Sequence[EpochQuery], /) -> Sequence[EpochAnswer]: ...
    async def list_offsets(self, queries: Sequence[OffsetQuery], /) -> Sequence[OffsetAnswer]: ...


FetchLinks = Callable[[int], FetchLink]  # broker id -> the link to it
