"""The logs of this broker: loaded, created, moved, deleted, lost with their directory.

Rule 1: a replica has one log, and at most one future log: the copy that a move between log directories fills (KIP-113).
A future log's directory has the same name with a mark, in another log directory.
Rule 2: the future log takes the log's place by two renames (`promote`); recovery/moves.py repairs a crash between them.
These methods are quick and run on the event loop; the caller syncs.
"""

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from logyard.broker.clock import Clock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode, LogyardError, StorageError
from logyard.broker.log import layout
from logyard.broker.log.background import DiskWork
from logyard.broker.log.directory import DuplicateReplica, LogDirectories, LogDirectory, Offsets
from logyard.broker.log.disk.port import Disk, DiskError
from logyard.broker.log.guards import VerificationSwitch
from logyard.broker.log.layout import DirectoryKind
from logyard.broker.log.listener import LogHost, LogListener, NoListener
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import recovery
from logyard.broker.log.recovery.recovery import LogState
from logyard.broker.log.segment.open_segments import OpenSegments
from logyard.broker.log.settings import StoreSettings
from logyard.broker.model import TopicId, TopicPartition


class TooManyReplicas(StorageError):
    """The limit of open files allows no more replicas; there is room once others are deleted."""

    is_passing = True


class LogRegistry:
    """The logs by partition: `current` logs and `futures`; `broken` has the paths of directories that could not be
    opened.

    `verification` is the switch of transaction.partition.verification.enable.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directories: LogDirectories,
        settings: StoreSettings,
        topic_config: Callable[[str], TopicConfig],
        new_uuid: Callable[[], uuid.UUID],
        note: Callable[[str], None],
        disk_work: DiskWork,
    ) -> None:
        self.current: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.broken: dict[TopicPartition, str] = {}
        self._half_made: dict[str, None] = {}  # directories whose creation failed; no replica uses them yet
        self.verification = VerificationSwitch(settings.verify_transactions)
        self._host = LogHost(NoListener(disk), OpenSegments(), self.verification, settings.validate_records)
        self._forget: Callable[[TopicPartition, str], object] = lambda _tp, _path: None
        self._disk, self._clock, self._directories = disk, clock, directories
        self._settings, self._topic_config = settings, topic_config
        self._new_uuid, self._note = new_uuid, note
        self._disk_work = disk_work
        self._high_watermarks: Offsets = {}
        self._to_be_synced: set[str] = set()  # directories whose names a thread is about to sync
        self._wanted: dict[
            TopicPartition, str
        ] = {}  # the directory in which a replica that does not exist yet will be created

    def serve(self, listener: LogListener[PartitionLog], forget: Callable[[TopicPartition, str], object]) -> None:
        """Have the logs report to `listener`; `forget(tp, path)` is called before a log is created."""
        self._host = self._host._replace(listener=listener)
        self._forget = forget

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """Return the replica's log; None if it has none here."""
        return self.current.get(tp)

    def future(self, tp: TopicPartition) -> PartitionLog | None:
        """Return the copy that a move to another log directory fills; None if the replica is not moving."""
        return self.futures.get(tp)

    def all_current(self) -> list[PartitionLog]:
        """Return the replicas' logs, without future logs."""
        return list(self.current.values())

    def all_futures(self) -> list[PartitionLog]:
        """Return the copies that moves between log directories fill."""
        return list(self.futures.values())

    @property
    def is_complete(self) -> bool:
        """Whether no log directory is offline: a replica that is not found then has no log here."""
        return len(self._directories.online) == len(self._directories.all)

    def everything(self) -> list[PartitionLog]:
        """Return all logs, future logs included."""
        return [*self.current.values(), *self.futures.values()]

    def high_watermark_at_start(self, tp: TopicPartition) -> int:
        """Return the checkpointed high watermark, limited to the log's bounds (facts §13)."""
        log = self.current.get(tp)
        checkpointed = self._high_watermarks.get(tp, 0)
        return checkpointed if log is None else min(max(checkpointed, log.log_start_offset), log.log_end_offset)

    # -- start ----------------------------------------------------------------------------------------------

    def take_in(self, directory: LogDirectory, name: str, tp: TopicPartition, state: LogState | LogyardError) -> None:
        """Add a log that was loaded, or record that it could not be. Raises DuplicateReplica."""
        path = f"{directory.root}/{name}"
        is_future = layout.is_future(path)
        known = self.futures if is_future else self.current
        if tp in known:
            raise DuplicateReplica(f"{tp} is in {known[tp].directory} and in {path}: move one of them away")
        if isinstance(state, LogyardError):
            self._note(f"{path}: cannot be opened: {state}")
            if not is_future:
                self.broken[tp] = path
                directory.replicas += 1
            return
        log = PartitionLog(
            self._disk,
            tp,
            path,
            self._topic_config(tp.topic),
            state,
            now_ms=self._clock.now_ms(),
            host=self._host,
            is_future=is_future,
        )
        known[tp] = log
        if tp in self.current and tp in self.futures:
            # From now on, and not only when the move goes on: a part of the log is in the copy already.
            self.current[tp].is_moving = True
        directory.replicas += 1
        checkpointed = directory.offsets[layout.HIGH_WATERMARKS].get(tp, 0)
        log.set_high_watermark(min(max(checkpointed, log.log_start_offset), log.log_end_offset))
        if not is_future:
            self._high_watermarks[tp] = checkpointed

    # -- making ---------------------------------------------------------------------------------------------

    def get_or_create(
        self,
        tp: TopicPartition,
        topic_id: TopicId | None,
        config: TopicConfig,
        is_new: bool,
        directory: str | None = None,
    ) -> PartitionLog:
        """Return the replica's log; if it has none, create it in the directory with the fewest replicas, or in
        `directory`.

        Raises StorageError if it cannot be created: too many open files, a damaged directory, or a replica that is not
        new while an offline directory may have it.
        """
        log = self.current.get(tp)
        if log is None:
            self._check_may_be_made(tp, is_new)
            log = self._make(tp, config, directory or self._wanted.get(tp))
        log.config = config
        if topic_id is not None and log.topic_id is None:
            log.assign_topic_id(topic_id)
        return log

    def _check_may_be_made(self, tp: TopicPartition, is_new: bool) -> None:
        if tp in self.broken:
            raise StorageError(f"{self.broken[tp]}: cannot be opened; the broker's log says why, move it away")
        if len(self.current) + len(self.futures) >= self._settings.partitions_max:
            raise TooManyReplicas(
                f"{tp}: {len(self.current)} replicas, the limit of open files allows no more: raise it (ulimit -n)"
            )
        offline = ", ".join(d.path for d in self._directories.all if not d.online)
        if offline and not is_new:
            raise StorageError(f"{tp}: may be in {offline}, which is offline")

    def _make(self, tp: TopicPartition, config: TopicConfig, wanted: str | None) -> PartitionLog:
        failure = StorageError(f"{tp}: no log directory works")
        for directory in self._directories.emptiest_first():
            if wanted is not None and directory.path != wanted:
                continue
            path = f"{directory.root}/{layout.directory_name(tp)}"
            try:
                if path not in self._half_made and self._disk.exists(path):
                    raise StorageError(f"{path}: is in the way of a new replica: move it away")
                self._half_made[path] = None
                log = self._create(tp, path, config)
                del self._half_made[path]
            except DiskError as error:
                failure = error  # this directory goes offline; the next one is tried
                if error.is_passing:
                    break  # another directory gives no descriptors
                continue
            self.current[tp] = log
            self._wanted.pop(tp, None)
            directory.replicas += 1
            return log
        raise failure

    def _create(self, tp: TopicPartition, path: str, config: TopicConfig, start: int | None = None) -> PartitionLog:
        self._forget(tp, path)
        now_ms = self._clock.now_ms()
        try:
            state = recovery.fresh(self._disk, path, config, start or 0, now_ms)
        except DiskError:
            self._unmake(path)
            raise
        return PartitionLog(
            self._disk, tp, path, config, state, now_ms=now_ms, host=self._host, is_future=start is not None
        )

    def _unmake(self, path: str) -> None:
        """Remove a directory whose log could not be made: at the next start it would be a second one of its replica."""
        with suppress(DiskError):
            self._disk.remove_tree(path)
            self._sync_names(path.rpartition("/")[0])

    # -- moving between directories -------------------------------------------------------------------------

    def begin_move(self, tp: TopicPartition, path: str) -> PartitionLog | None:
        """Start to move a replica to another log directory; returns its future log, None if the replica is there
        already.

        A move in progress to a third directory ends. Raises ApiError: INVALID_TOPIC_EXCEPTION (the name is too long for
        a future log's directory), LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the directory is offline),
        REPLICA_NOT_AVAILABLE (no replica here; if it is created later, it will be in that directory).
        """
        marked = layout.marked_directory_name(tp, self._new_uuid(), DirectoryKind.FUTURE)
        if len(marked) > layout.NAME_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp}: the topic name is too long for a future log")
        directory = next((d for d in self._directories.all if path in (d.path, d.root)), None)
        if directory is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
        if not directory.online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        if tp in self.broken:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.broken[tp]}: cannot be opened")
        future = self.futures.get(tp)
        if future is not None and not directory.holds(future.directory):
            self.drop_future(tp)
            future = None
        log = self.current.get(tp)
        if log is None:
            self._wanted[tp] = directory.path
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{tp}: has no log here yet")
        if future is not None or directory.holds(log.directory):
            return future
        future = self._create(tp, f"{directory.root}/{marked}", log.config, log.log_start_offset)
        directory.replicas += 1
        if log.topic_id is not None:
            try:
                future.assign_topic_id(log.topic_id)
            except DiskError:
                future.discard("its topic's id could not be written")
                self._retire(future.directory, log.config)
                raise
        log.is_moving = True
        self.futures[tp] = future
        return future

    def resume_move(self, tp: TopicPartition) -> bool:
        """Continue a move that the broker's stop interrupted, and return True; False if there is none.

        A future log of an earlier topic with this name is dropped.
        """
        log, future = self.current.get(tp), self.futures.get(tp)
        if log is None or future is None:
            return False
        if None not in (log.topic_id, future.topic_id) and log.topic_id != future.topic_id:
            self.drop_future(tp)
            return False
        log.is_moving = True
        return True

    def promote(self, tp: TopicPartition) -> PartitionLog:
        """Put the future log in the place of the log, whose directory is removed later. Raises DiskError."""
        log, future = self.current[tp], self.futures[tp]
        log.want_producers()
        for _ in future.producers.adopting(log.producers):
            pass  # few: see LogStore.prepare_promotion
        # Who was verified and has not written yet: nobody would verify that producer's transaction again.
        future.producers.guards = log.producers.guards
        future.epochs.adopt(log.epochs.entries)
        path = f"{self._directories.of(future.directory).root}/{layout.directory_name(tp)}"
        self._disk.rename(future.directory, path)
        future.moved_to(path)
        self.current[tp] = future
        del self.futures[tp]
        log.discard("moved to another log directory")
        with suppress(DiskError):  # the old directory is on a disk that fails: no loss
            self._retire(log.directory, log.config)
        return future

    def drop_future(self, tp: TopicPartition) -> None:
        """End a move: the future log's directory is renamed now and removed later."""
        future = self.futures.pop(tp, None)
        if future is not None:
            future.discard("the move was given up")
            self._retire(future.directory, future.config)
            if (log := self.current.get(tp)) is not None:
                log.is_moving = False

    # -- going ----------------------------------------------------------------------------------------------

    def delete(self, tp: TopicPartition) -> None:
        """Delete a replica: its directory is renamed now and removed after file.delete.delay.ms."""
        self._wanted.pop(tp, None)
        self.drop_future(tp)
        log = self.current.pop(tp, None)
        path = self.broken.pop(tp, None) if log is None else log.directory
        if path is None:
            return
        if log is not None:
            log.discard("deleted")
        self._high_watermarks.pop(tp, None)
        self._retire(path, self._topic_config(tp.topic) if log is None else log.config)

    def set_aside(self, tp: TopicPartition) -> str:
        """Replace a replica's log by an empty one, and keep the old files; returns their new path. Raises DiskError.

        Their directory is renamed to `…-stray`, which Kafka neither loads nor removes. The old log's entries in the
        checkpoints are removed.
        """
        self.drop_future(tp)
        old = self.current[tp]
        directory = self._directories.of(old.directory)
        name = layout.marked_directory_name(tp, self._new_uuid(), DirectoryKind.STRAY)
        old.segments.cuts += 1  # another log takes its name
        self._disk.rename(old.directory, f"{directory.root}/{name}")
        del self.current[tp]
        old.discard("set aside")
        directory.replicas -= 1
        self._high_watermarks.pop(tp, None)
        self._wanted[tp] = directory.path
        self._sync_names(directory.root)
        new = self.get_or_create(tp, old.topic_id, old.config, True)
        self._host.listener.cut(new, new.log_end_offset)
        return f"{directory.root}/{name}"

    def _retire(self, path: str, config: TopicConfig) -> None:
        """Rename a partition's directory now, and remove it after file.delete.delay.ms."""
        directory = self._directories.of(path)
        directory.replicas -= 1
        parsed = layout.parse_directory_name(path.rpartition("/")[2])
        assert parsed is not None, path
        name = layout.marked_directory_name(parsed.partition, self._new_uuid(), DirectoryKind.DELETED)
        try:
            self._disk.rename(path, f"{directory.root}/{name}")
        except FileNotFoundError:
            self._note(f"{path}: is gone already: somebody has removed it")
            return
        self._sync_names(directory.root)
        self._disk_work.remove_later(config.file_delete_delay_ms, partial(directory.remove_leftover, name))

    def _sync_names(self, root: str) -> None:
        """Sync a log directory's names soon, in a thread: once for all that are changed until it begins."""
        if root not in self._to_be_synced:
            self._to_be_synced.add(root)
            self._disk_work.soon(partial(self._sync, root))

    def _sync(self, root: str) -> None:
        self._to_be_synced.discard(root)  # first: what is renamed from now on needs a sync of its own
        self._disk.sync_directory(root)

    def lose(self, directory: LogDirectory, error: StorageError) -> list[TopicPartition]:
        """Drop the logs of a failed directory; returns their replicas (future logs excluded)."""
        lost: list[TopicPartition] = []
        for known in (self.current, self.futures):
            for log in [log for log in known.values() if directory.holds(log.directory)]:
                log.fail(StorageError(f"{directory.path} is offline: {error}"))
                log.discard("offline")
                del known[log.tp]
                if known is self.current:
                    lost.append(log.tp)
                elif log.tp in self.current:
                    self.current[log.tp].is_moving = False
        return lost

    def clear(self) -> None:
        """Forget all logs: the broker stops."""
        self.current.clear()
        self.futures.clear()
