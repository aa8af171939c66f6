"""Moves of replicas from one log directory of this broker to another (KIP-113, Kafka's ReplicaAlterLogDirsThread).

Rule 1: the future log is a prefix of the log, batch for batch. It is filled from its own end; a truncation of the log
cuts it as well; after a restart the leader epochs tell how much both have in common, and where the log is compacted its
batches do.
Rule 2: it takes the log's place only when both end at the same offset and everything durable in the log is durable in
it. Nothing else runs between that check and the renames, so no append falls between the two.
Rule 3: a move ends with its replica, its directory, or a request for another directory. None of these notify the move:
each of its steps checks again.

Moves are coroutines without a clock of their own: `pause(seconds)` waits, `spawn` starts one.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

from logyard.broker.errors import ApiError, ErrorCode, LogyardError, StorageError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery.agreement import agreed_end
from logyard.broker.model import TopicPartition
from logyard.broker.replication.follower import truncation
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.throttle import UNLIMITED, ByteRate

THROTTLE_PAUSE_S = 0.1
READ_AGAIN_PAUSE_S = 0.02
WITHOUT_DESCRIPTORS_PAUSE_S = 1.0

Spawn = Callable[[Coroutine[Any, Any, None]], object]
Pause = Callable[[float], Awaitable[None]]


class MovableLogs(Protocol):
    """The part of log.registry.LogRegistry that moves use."""

    def get(self, tp: TopicPartition) -> PartitionLog | None: ...
    def future(self, tp: TopicPartition) -> PartitionLog | None: ...
    def begin_move(self, tp: TopicPartition, directory: str) -> object: ...
    def resume_move(self, tp: TopicPartition) -> bool: ...


class Promotion(Protocol):
    """Puts a future log in its log's place (log.store.LogStore)."""

    async def prepare_promotion(self, tp: TopicPartition) -> None: ...
    def promote(self, tp: TopicPartition) -> PartitionLog: ...


class LogDirMoves:
    """The running moves of this broker."""

    def __init__(
        self,
        hosted: Hosted,
        logs: MovableLogs,
        promotion: Promotion,
        spawn: Spawn,
        pause: Pause,
        note: Callable[[str], None],
    ) -> None:
        self._hosted = hosted
        self._logs = logs
        self._promotion = promotion
        self._spawn = spawn
        self._pause = pause
        self._note = note
        self._moving: set[TopicPartition] = set()
        self._closed = False
        self._rate = ByteRate(hosted.settings.alter_log_dirs_windows, hosted.settings.alter_log_dirs_window_ms)

    def alter(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Move replicas to log directories (AlterReplicaLogDirs); returns an error code for each.

        REPLICA_NOT_AVAILABLE (no replica here yet), INVALID_TOPIC_EXCEPTION (the topic's name is too long),
        KAFKA_STORAGE_ERROR (a directory is offline), LOG_DIR_NOT_FOUND (it is not in log.dirs).
        """
        return {tp: self._begin(tp, directory) for tp, directory in wanted.items()}

    def _begin(self, tp: TopicPartition, directory: str) -> ErrorCode:
        if tp in self._hosted.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if tp not in self._hosted.partitions and self._logs.get(tp) is not None:
            return ErrorCode.REPLICA_NOT_AVAILABLE  # the controller has not sent its role yet
        try:
            future = self._logs.begin_move(tp, directory)
        except ApiError as refused:
            return refused.code
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if future is not None:
            self._follow(tp)
        return ErrorCode.NONE

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """The replica has a role now: continue a move that the broker's stop interrupted (a LeadershipListener)."""
        if tp not in self._moving and tp in self._hosted.partitions and self._logs.resume_move(tp):
            self._follow(tp)

    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """As for a leader. Also called for a replica whose directory failed: its move ends by itself."""
        self.on_leader(tp, leader_epoch)

    def on_deleted(self, tp: TopicPartition) -> None:
        """The move ends with its replica."""

    def close(self) -> None:
        """Stop all moves; the next start continues them."""
        self._closed = True

    def _follow(self, tp: TopicPartition) -> None:
        if tp not in self._moving:
            self._moving.add(tp)
            self._spawn(self._move(tp))

    async def _move(self, tp: TopicPartition) -> None:
        has_waited = False
        try:
            while True:
                try:
                    return await self._fill(tp)
                except StorageError as error:
                    if not error.is_passing:
                        raise
                    if not has_waited:
                        self._note(f"{tp}: its move to another log directory waits: {error}")
                        has_waited = True
                await self._pause(WITHOUT_DESCRIPTORS_PAUSE_S)
        except LogyardError as error:
            # The directory failed, or a batch was damaged: the move continues at the next start, or on request.
            self._note(f"{tp}: its move to another log directory stops: {error}")
        finally:
            self._moving.discard(tp)

    async def _fill(self, tp: TopicPartition) -> None:
        aligned: PartitionLog | None = None
        prepared: PartitionLog | None = None
        while (pair := self._pair(tp)) is not None:
            partition, log, future = pair
            if aligned is not future:
                align(log, future)
                aligned = future if await self._agree(tp, log, future) else None
                continue
            follow_bounds(log, future)
            if _is_read_again(log) or _is_read_again(future):
                await self._pause(READ_AGAIN_PAUSE_S)
            elif future.log_end_offset < log.log_end_offset:
                await self._copy(tp, log, future)
            elif prepared is not future or future.recovery_point < log.recovery_point:
                await self._promotion.prepare_promotion(tp)
                prepared = future
            else:
                partition.log = self._promotion.promote(tp)
                self._note(f"{tp}: now lies in another log directory, {future.size} bytes were copied")
                self._hosted.transitioned(partition)
                return

    async def _agree(self, tp: TopicPartition, log: PartitionLog, future: PartitionLog) -> bool:
        """Cut the copy of a compacted log to the batches that both have; returns False if that is to be tried again,
        as one of them has changed meanwhile."""
        start, end = max(log.log_start_offset, future.log_start_offset), future.log_end_offset
        if not log.config.compacted or start >= end:
            return True
        both = [list(each.segments) for each in (log, future)]
        cuts = [each.segments.cuts for each in (log, future)]
        readers = [[segment.reader() for segment in each] for each in both]
        work = partial(agreed_end, readers[0], readers[1], start, end)
        try:
            agreed: int = await self._hosted.run_blocking(work)
        except FileNotFoundError as error:
            if both == [list(each.segments) for each in (log, future)]:
                raise StorageError(f"{tp}: a file is gone: {error}") from error
            return False  # retention has deleted it
        pair = self._pair(tp)
        if pair is None or pair[1:] != (log, future) or cuts != [each.segments.cuts for each in (log, future)]:
            return False
        if agreed < end:
            self._note(f"{future.directory}: from offset {agreed} on its log was compacted meanwhile: copied anew")
            future.truncate_to(agreed)
        return True

    def _pair(self, tp: TopicPartition) -> tuple[Partition, PartitionLog, PartitionLog] | None:
        partition = self._hosted.partitions.get(tp)
        log, future = self._logs.get(tp), self._logs.future(tp)
        if self._closed or partition is None or log is None or future is None or partition.log is not log:
            return None
        return partition, log, future

    async def _copy(self, tp: TopicPartition, log: PartitionLog, future: PartitionLog) -> None:
        """Copy some batches; returns at once if none are missing."""
        settings = self._hosted.settings
        start, end = future.log_end_offset, log.log_end_offset
        found = log.read(start, settings.fetch_max_bytes, limit_offset=end, min_one=True, whole=True)
        if not found.is_cold and not found.size:
            # The log was cut where compaction had removed the records: it ends above its last batch.
            future.log_end_offset = end
            return
        data = found.load_nowait()
        if data is None:
            data = await self._hosted.run_blocking(found.load)
            if self._pair(tp) is None or self._logs.future(tp) is not future or future.log_end_offset != start:
                return  # it was cut, or is no longer wanted
        if data:
            future.append_as_follower(data)
            self._rate.record(len(data), self._hosted.now_ms())
        if not data or future.log_end_offset < log.log_end_offset:
            await self._pause(0)
        while (
            settings.alter_log_dirs_rate != UNLIMITED
            and self._rate.per_second(self._hosted.now_ms()) > settings.alter_log_dirs_rate
        ):
            await self._pause(THROTTLE_PAUSE_S)


def _is_read_again(log: PartitionLog) -> bool:
    """Whether a thread finds the states of the log's producers, after a truncation: nothing is written until then."""
    return log.pending_reload is not None and log.pending_reload.is_awaited


def align(log: PartitionLog, future: PartitionLog) -> None:
    """Cut a future log to what it has in common with its log: after a crash either may be longer."""
    while (latest := future.epochs.latest) is not None and future.log_end_offset > future.log_start_offset:
        epoch, end = log.epochs.end_offset_for(latest)
        # An epoch unknown to the log began after what the log still has.
        where = truncation.truncation(epoch, end, future.epochs, future.log_end_offset, log.log_end_offset)
        if where.offset >= future.log_end_offset:
            break
        future.truncate_to(where.offset)
        if where.done:
            break
    if future.log_end_offset > log.log_end_offset:
        future.truncate_to(log.log_end_offset)


def follow_bounds(log: PartitionLog, future: PartitionLog) -> None:
    """Copy the log's settings, start and high watermark, as far as the future log reaches."""
    if future.config is not log.config:
        future.config = log.config
    if future.log_end_offset < log.log_start_offset:
        future.truncate_fully(log.log_start_offset)
    mark = min(log.high_watermark, future.log_end_offset)
    if mark > future.high_watermark:
        future.set_high_watermark(mark)
    start = min(log.log_start_offset, future.high_watermark)
    if start > future.log_start_offset:
        future.advance_log_start(start)
