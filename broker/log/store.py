"""All logs of a broker: loaded at the start, created and removed, flushed and checkpointed, closed.

Work that waits for the disk runs through `run_blocking`; everything else runs on the event loop, which owns the logs. A
directory that failed once (any DiskError) is offline until the next start: its logs raise StorageError, and
`on_offline` is called with them.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from logyard.broker.clock import Clock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import CorruptData, LogyardError, StorageError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.log import layout
from logyard.broker.log.background import BackgroundWork, DiskWork
from logyard.broker.log.checkpoint_writer import CheckpointWriter
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.directory import DirectoryContents, LogDirectories, LogDirectory, agreed_identity
from logyard.broker.log.disk.port import DirectoryLocked, Disk, DiskError
from logyard.broker.log.expiry import Expiry
from logyard.broker.log.flusher import Flusher
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import moves, recovery
from logyard.broker.log.recovery.loading import read_logs
from logyard.broker.log.recovery.replay import Reload
from logyard.broker.log.registry import LogRegistry
from logyard.broker.log.settings import StoreSettings as StoreSettings
from logyard.broker.log.space import DirectorySpace
from logyard.broker.log.store_listener import StoreListener
from logyard.broker.model import TopicPartition

LOADED_TOGETHER = 16
CLOSED_TOGETHER = 8  # so that the file system's journal serves many syncs at once
FLUSH_LOOK_MS_MAX = 3_000


class LogStore:
    """The broker's logs: call `open`, `claim`, `load`, `start`, in this order; `close` or `abandon` at any time.

    `logs` has them by partition; `flusher`, `checkpoints` and `expiry` maintain them; `space` asks how full the
    directories' disks are. `on_offline(path, replicas)` is
    called for a directory that failed, `on_cut(tp, offset)` for a truncated log; `note` gets lines for the broker's log
    (from any thread). `before_move(log, copy)` puts into a copy's directory what others keep in the log's, right before
    it takes its place; `on_moved(tp)` is called when it has.
    """

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        clock: Clock,
        run_blocking: RunBlocking,
        *,
        topic_config: Callable[[str], TopicConfig],
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        note: Callable[[str], None] = recovery.unheard,
        on_offline: Callable[[str, list[TopicPartition]], object] = lambda _path, _replicas: None,
    ) -> None:
        self.settings = settings
        self.strays: list[str] = []
        self.producer_id_expiration_ms = settings.producer_id_expiration_ms  # dynamic: read at every check
        self.on_cut: Callable[[TopicPartition, int], object] = lambda _tp, _offset: None
        self.before_move: Callable[[PartitionLog, PartitionLog], Awaitable[None]] = _keep_nothing
        self.on_moved: Callable[[TopicPartition], object] = lambda _tp: None
        self._disk, self._clock, self._run = disk, clock, run_blocking
        self._topic_config, self._new_uuid, self._note, self._on_offline = topic_config, new_uuid, note, on_offline
        self._directories = LogDirectories(disk, settings.log_dirs, note)
        self._background = BackgroundWork(note)
        self._disk_work = DiskWork(self._background, run_blocking)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loaded = False
        self.logs = LogRegistry(disk, clock, self._directories, settings, topic_config, new_uuid, note, self._disk_work)
        everything = self.logs.everything
        self.flusher = Flusher(clock, run_blocking, everything, note)
        self.space = DirectorySpace(disk, run_blocking)
        self.checkpoints = CheckpointWriter(self._directories, everything, run_blocking)
        self.expiry = Expiry(clock, everything, partial(asyncio.sleep, 0))
        self.logs.serve(
            StoreListener(self.flusher, self.checkpoints, self._disk_work, self._cutting, self._cut, note),
            self.checkpoints.forget,
        )

    # -- who is here ----------------------------------------------------------------------------------------

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Every log directory as configured."""
        return self.settings.log_dirs

    @property
    def online_directories(self) -> tuple[str, ...]:
        """The log directories in use, as configured."""
        return tuple(directory.path for directory in self._directories.online)

    def cleaner_offset(self, tp: TopicPartition) -> int | None:
        """Return the offset below which a log is cleaned, from its directory's checkpoint."""
        return self.checkpointed(tp)[layout.CLEANER_OFFSETS]

    def checkpointed(self, tp: TopicPartition) -> dict[str, int | None]:
        """Return the partition's entry in each of the four checkpoints on disk, by file name."""
        log = self.logs.get(tp)
        return dict.fromkeys(layout.CHECKPOINTS) if log is None else self.checkpoints.on_disk(log)

    # -- start ----------------------------------------------------------------------------------------------

    async def open(self) -> DirectoryIdentity | None:
        """Lock every directory and return the owner that they name. A directory that fails is offline.

        As in Kafka, a directory with an unreadable meta.properties is offline, too. Raises IdentityMismatch if they
        differ, StorageError if another broker uses one or none works.
        """
        self._loop = asyncio.get_running_loop()
        self._disk.on_failure = self._disk_failed
        for directory in self._directories.all:
            try:
                await self._run(directory.open)
            except DirectoryLocked as error:
                raise StorageError(f"{directory.path}: in use by another broker, stop that one first") from error
            except DiskError as error:
                self._take_offline(directory, error)
            except CorruptData as error:
                self._take_offline(directory, StorageError(f"{error}: repair it, or move the directory away"))
        self._want_one_online()
        return agreed_identity(self._directories.all)

    async def claim(self, broker_id: int, cluster_id: str) -> None:
        """Write the owner into every directory (meta.properties)."""
        identity = DirectoryIdentity(broker_id, cluster_id)
        for directory in self._directories.online:
            try:
                await self._run(partial(directory.claim, identity, self._clock.now_ms()))
            except DiskError as error:
                self._take_offline(directory, error)
        self._want_one_online()

    async def load(self) -> None:
        """Open every log, with recovery after an unclean shutdown, all directories in parallel.

        Raises StorageError if no directory is left or a replica is in two of them.
        """
        if self._loop is None:
            await self.open()
        begun = await asyncio.gather(*(self._begin(directory) for directory in self._directories.online))
        places = [place for place in begun if place is not None]
        complete = len(places) == len(self._directories.all)
        await self._run(partial(moves.settle, places, complete=complete, new_uuid=self._new_uuid, note=self._note))
        await asyncio.gather(*(self._load_directory(directory, found) for directory, found in places))
        self._want_one_online()
        self._loaded = True

    def _want_one_online(self) -> None:
        if not self._directories.online:
            raise StorageError(f"no log directory works: {', '.join(self.log_dirs)}")

    async def _begin(self, directory: LogDirectory) -> tuple[LogDirectory, DirectoryContents] | None:
        try:
            return directory, await self._run(directory.begin)
        except DiskError as error:
            self._take_offline(directory, error)
        except LogyardError as error:
            self._take_offline(directory, StorageError(str(error)))
        return None

    async def _load_directory(self, directory: LogDirectory, found: DirectoryContents) -> None:
        try:
            await self._load_found(directory, found)
            await self.checkpoints.settle_loaded(directory)
            await self._run(directory.note_loaded)
        except DiskError as error:
            self._take_offline(directory, error)

    async def _load_found(self, directory: LogDirectory, found: DirectoryContents) -> None:
        self.strays += found.strays
        for name, tp in found.deleted:
            delay_ms = self._topic_config(tp.topic).file_delete_delay_ms
            self._disk_work.remove_later(delay_ms, partial(directory.remove_leftover, name))
        wanted, done = [*found.live, *found.future], 0
        how = "closed cleanly" if directory.clean else "to be recovered"
        self._note(f"{directory.path}: {len(wanted)} logs, {how}")
        groups = iter([wanted[at : at + LOADED_TOGETHER] for at in range(0, len(wanted), LOADED_TOGETHER)])

        async def worker() -> None:
            nonlocal done
            for group in groups:
                read = partial(read_logs, directory, group, self._topic_config, self._clock.now_ms(), self._note)
                states = await self._run(read)
                if not directory.online:
                    return  # another worker met the error that ends the loading
                for (name, tp), state in zip(group, states, strict=True):
                    self.logs.take_in(directory, name, tp, state)
                await self._sync_recovered(tp for _, tp in group)
                before, done = done, done + len(group)
                if done // 1000 > before // 1000 or (done == len(wanted) and done > LOADED_TOGETHER):
                    self._note(f"{directory.path}: {done} of {len(wanted)} logs loaded")

        await asyncio.gather(*(worker() for _ in range(self.settings.recovery_threads_per_dir)))

    async def _sync_recovered(self, tps: Iterable[TopicPartition]) -> None:
        """Sync what recovery found unsynced, in logs whose topics sync before they acknowledge.

        A leader that is alone in its ISR serves such records at once: a later power loss must not remove them.
        """
        for log in filter(None, map(self.logs.get, tps)):
            if log.owes_sync:
                with suppress(StorageError):
                    await self.flusher.flush(log)

    # -- moving between directories -------------------------------------------------------------------------

    async def prepare_promotion(self, tp: TopicPartition) -> None:
        """Make the future log as durable as the log, checkpoints included, and mark it. Raises StorageError.

        Both end at the same offset, at first: so the states of producers whose batches are below the log's start, and
        were not copied, are of no batch that the future log does not have.
        """
        log, future = self.logs.get(tp), self.logs.future(tp)
        if log is None or future is None:
            return
        cuts = future.segments.cuts
        for _ in future.producers.adopting(log.producers):
            await asyncio.sleep(0)
            if future.segments.cuts != cuts:
                break
        directory = self._directories.of(future.directory)
        await self.flusher.flush(future)
        for name in (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS):
            await self.checkpoints.write(directory, name)
        cleaned = self._directories.of(log.directory).offsets[layout.CLEANER_OFFSETS].get(tp)
        if cleaned is not None or tp in directory.offsets[layout.CLEANER_OFFSETS]:
            await self.checkpoints.set_cleaner_offset(future, cleaned or 0)
        await self.before_move(log, future)
        await self._run(partial(moves.mark, self._disk, future.directory))

    def promote(self, tp: TopicPartition) -> PartitionLog:
        """Put the future log in the log's place, and return it. Both end at the same offset. Raises StorageError."""
        old = self.logs.current[tp].directory
        left = self._directories.of(old)
        log = self.logs.promote(tp)
        self._background.spawn(
            self.checkpoints.write(left, layout.CLEANER_OFFSETS)
        )  # the new directory's checkpoint has the entry now
        roots = (self._directories.of(log.directory).root, left.root)
        self._disk_work.soon(partial(moves.unmark, self._disk, roots, old, log.directory))
        self.on_moved(tp)
        return log

    def _cutting(self, log: PartitionLog, offset: int) -> None:
        # First: a copy that is shorter is filled again, one with other records would take the log's place.
        if not log.is_future and (future := self.logs.future(log.tp)) is not None:
            future.truncate_to(offset)

    def _cut(self, log: PartitionLog, offset: int) -> None:
        if log.pending_reload is not None:
            log.pending_reload.is_awaited = True
            self._background.keep(partial(self._reload, log, log.pending_reload))
        if not log.is_future:
            self.on_cut(log.tp, offset)

    async def _reload(self, log: PartitionLog, reload: Reload) -> None:
        """Read the producers' states again; nothing is appended until then. After an error it is tried again."""
        if log.pending_reload is not reload or log.failure is not None:
            return
        try:
            await self._run(reload.run)
        except DiskError:
            await asyncio.sleep(0)  # the disk's report of it comes first
            if self._directories.of(log.directory).online:
                raise
            return
        log.finish_reload(reload)

    # -- looking after --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic work; call it on the event loop, after `load`."""
        settings, background = self.settings, self._background
        flush_look = min(settings.flush_scheduler_interval_ms, FLUSH_LOOK_MS_MAX)
        first_ms = settings.initial_task_delay_ms
        background.every(settings.retention_check_interval_ms, self.expiry.delete_old_segments, first_ms)
        background.every(flush_look, self.flusher.flush_overdue)
        for interval, name in (
            (settings.recovery_point_checkpoint_interval_ms, layout.RECOVERY_POINTS),
            (settings.log_start_checkpoint_interval_ms, layout.LOG_STARTS),
            (settings.high_watermark_checkpoint_interval_ms, layout.HIGH_WATERMARKS),
            (settings.recovery_point_checkpoint_interval_ms, layout.CLEANER_OFFSETS),  # without deleted replicas
        ):
            background.every(interval, partial(self.checkpoints.write_everywhere, name))
        background.every(
            settings.producer_id_expiration_check_interval_ms,
            lambda: self.expiry.expire_producers(self.producer_id_expiration_ms),
        )
        background.keep(self.flusher.serve)

    async def set_cleaner_offset(self, tp: TopicPartition, offset: int) -> None:
        """Record durably the offset below which a log is cleaned: the last step of a swap. Raises StorageError."""
        if (log := self.logs.get(tp)) is None:
            raise StorageError(f"{tp}: has no log here")
        await self.checkpoints.set_cleaner_offset(log, offset)

    # -- failing and ending ---------------------------------------------------------------------------------

    def _disk_failed(self, error: DiskError) -> None:
        """The disk reports an error, in the thread of the failed call."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._fail_directory, error)

    def _fail_directory(self, error: DiskError) -> None:
        with suppress(KeyError):  # an error outside of all log directories affects none of them
            self._take_offline(self._directories.of(error.path), error)

    def _take_offline(self, directory: LogDirectory, error: StorageError) -> None:
        if not directory.online:
            return
        directory.online = False
        self._note(f"{directory.path}: offline from now on: {error}")
        self._on_offline(directory.path, self.logs.lose(directory, error))

    async def abandon(self) -> None:
        """Stop as a crash of the process would: cancel the store's work; flush, write and close nothing.

        The directories stay locked, and are not marked as clean: the next start recovers. For tests.
        """
        await self._background.stop()

    async def close(self) -> None:
        """Flush and close every log, write the checkpoints, and mark the sound directories as clean."""
        await self._background.stop()
        self.checkpoints.close()
        for directory in self._directories.online:
            if self._loaded:
                try:
                    await self._close_directory(directory)
                except (StorageError, FileNotFoundError) as error:
                    self._note(f"{directory.path}: not closed cleanly: {error}")
        self.logs.clear()
        for directory in self._directories.all:
            directory.unlock()

    async def _close_directory(self, directory: LogDirectory) -> None:
        logs = [log for log in self.logs.everything() if directory.holds(log.directory)]
        offsets = {name: self.checkpoints.offsets(directory, name) for name in layout.CHECKPOINTS}
        waiting, left_open = iter(logs), 0

        async def worker() -> None:
            nonlocal left_open
            for log in waiting:
                try:
                    await self._run(log.close)
                except (StorageError, FileNotFoundError) as error:
                    await asyncio.sleep(0)  # what the disk reports comes first
                    if not directory.online:
                        raise
                    self._note(f"{log.directory}: not closed cleanly: {error}")
                    left_open += 1

        await asyncio.gather(*(worker() for _ in range(CLOSED_TOGETHER)))
        offsets[layout.RECOVERY_POINTS] = {log.tp: log.recovery_point for log in logs}
        for name in layout.CHECKPOINTS:
            await self._run(partial(directory.write_now, name, offsets[name]))
        if not self.logs.broken and not left_open:
            await self._run(directory.mark_clean)


async def _keep_nothing(_log: PartitionLog, _copy: PartitionLog) -> None:
    """Nobody keeps anything beside a log."""
