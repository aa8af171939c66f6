"""All logs of a broker: found and loaded at the start, made and removed, looked after, closed. This package's shell.

What waits for the disk runs through `run_blocking`; everything else runs on the event loop, which owns the logs.
A directory that failed once (any DiskError) is offline until the next start: its logs raise StorageError, and
`on_offline` is told which they were.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from logyard.broker.clock import Clock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import CorruptData, LogyardError, StorageError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.log import layout
from logyard.broker.log.background import Chores
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.directory import Found, LogDirectories, LogDirectory, agreed_identity
from logyard.broker.log.disk.port import DirectoryLocked, Disk, DiskError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import moves, recovery
from logyard.broker.log.recovery.loading import read_logs
from logyard.broker.log.recovery.replay import Reload
from logyard.broker.log.registry import Inventory
from logyard.broker.log.settings import StoreSettings as StoreSettings
from logyard.broker.log.upkeep import Upkeep
from logyard.broker.model import TopicId, TopicPartition

LOADED_TOGETHER = 16
CLOSED_TOGETHER = 8  # so that the file system's journal serves many syncs at once
FLUSH_LOOK_MS_MAX = 3_000


class LogStore:
    """The broker's logs: `open`, `claim`, `load`, `start`, in this order; `close` at any time.

    `on_offline(path, replicas)` hears of a directory that failed, `on_cut(tp, offset)` of a truncated log,
    `note` gets lines for people (from any thread).
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
        on_cut: Callable[[TopicPartition, int], object] = lambda _tp, _offset: None,
    ) -> None:
        self.settings = settings
        self.strays: list[str] = []
        self.producer_id_expiration_ms = settings.producer_id_expiration_ms  # dynamic: read at every check
        self.on_cut = on_cut
        self._disk, self._clock, self._run = disk, clock, run_blocking
        self._topic_config, self._new_uuid, self._note, self._on_offline = topic_config, new_uuid, note, on_offline
        self._directories = LogDirectories(disk, settings.log_dirs, note)
        self._inventory = Inventory(disk, clock, self._directories, settings, topic_config, new_uuid, note, self._later)
        self._flush_wanted = asyncio.Event()
        self._chores = Chores(note)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loaded = False
        self._upkeep = Upkeep(
            clock,
            run_blocking,
            partial(asyncio.sleep, 0),
            asyncio.Lock(),
            self._inventory.everything,
            self._directories,
            self._later,
            self._flush_wanted.set,
            self._cut,
            note,
        )
        self._inventory.host = self._inventory.host._replace(listener=self._upkeep)
        self._inventory.forget = self._upkeep.forget

    # -- who is here ----------------------------------------------------------------------------------------

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Every log directory as configured."""
        return self.settings.log_dirs

    @property
    def online_directories(self) -> tuple[str, ...]:
        """The log directories in use, as configured."""
        return tuple(directory.path for directory in self._directories.online)

    def space(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of a log directory's file system."""
        return self._disk.space(path)

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        return self._inventory.logs.get(tp)

    def future(self, tp: TopicPartition) -> PartitionLog | None:
        """The copy that a move to another log directory fills, where one is under way."""
        return self._inventory.futures.get(tp)

    def all_logs(self) -> list[PartitionLog]:
        """The replicas' logs; future logs are not among them."""
        return list(self._inventory.logs.values())

    def future_logs(self) -> list[PartitionLog]:
        return list(self._inventory.futures.values())

    def high_watermark_at_start(self, tp: TopicPartition) -> int:
        """The checkpointed high watermark within the log's bounds (facts §13)."""
        return self._inventory.high_watermark_at_start(tp)

    def cleaner_offset(self, tp: TopicPartition) -> int | None:
        """Up to where a log is cleaned, as its directory's checkpoint says."""
        return self.checkpointed(tp)[layout.CLEANER_OFFSETS]

    def checkpointed(self, tp: TopicPartition) -> dict[str, int | None]:
        """The partition's line of each of the four checkpoints on disk, by file name."""
        log = self.get(tp)
        on_disk = {} if log is None else self._directories.of(log.directory).offsets
        return {name: on_disk.get(name, {}).get(tp) for name in layout.CHECKPOINTS}

    # -- start ----------------------------------------------------------------------------------------------

    async def open(self) -> DirectoryIdentity | None:
        """Lock every directory and read whose it is; returns that. One that fails is offline.

        As in Kafka a directory whose meta.properties cannot be read is offline, too. Raises IdentityMismatch where they
        differ, StorageError where another broker uses one or none works.
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
                self._take_offline(directory, StorageError(f"{error}: mend it, or move the directory away"))
        self._want_one_online()
        return agreed_identity(self._directories.all)

    async def claim(self, broker_id: int, cluster_id: str) -> None:
        """Write into every directory whose it is (meta.properties)."""
        identity = DirectoryIdentity(broker_id, cluster_id)
        for directory in self._directories.online:
            try:
                await self._run(partial(directory.claim, identity, self._clock.now_ms()))
            except DiskError as error:
                self._take_offline(directory, error)
        self._want_one_online()

    async def load(self) -> None:
        """Open every log, recovering what was not closed, the directories side by side.

        Raises StorageError where no directory is left or a replica is in two of them.
        """
        if self._loop is None:
            await self.open()
        begun = await asyncio.gather(*(self._begin(directory) for directory in self._directories.online))
        places = [place for place in begun if place is not None]
        complete = len(places) == len(self._directories.all)
        with suppress(DiskError):  # its directory is going offline
            await self._run(partial(moves.settle, places, complete=complete, new_uuid=self._new_uuid, note=self._note))
        await asyncio.gather(*(self._load_directory(directory, found) for directory, found in places))
        self._want_one_online()
        self._loaded = True

    def _want_one_online(self) -> None:
        if not self._directories.online:
            raise StorageError(f"no log directory works: {', '.join(self.log_dirs)}")

    async def _begin(self, directory: LogDirectory) -> tuple[LogDirectory, Found] | None:
        try:
            return directory, await self._run(directory.begin)
        except DiskError as error:
            self._take_offline(directory, error)
        except LogyardError as error:
            self._take_offline(directory, StorageError(str(error)))
        return None

    async def _load_directory(self, directory: LogDirectory, found: Found) -> None:
        try:
            await self._load_found(directory, found)
            await self._run(directory.loaded)
        except DiskError as error:
            self._take_offline(directory, error)

    async def _load_found(self, directory: LogDirectory, found: Found) -> None:
        self.strays += found.strays
        for name, tp in found.deleted:
            delay_ms = self._topic_config(tp.topic).file_delete_delay_ms
            self._later(delay_ms, partial(directory.remove_leftover, name))
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
                    return  # another worker met the error that ends this
                for (name, tp), state in zip(group, states, strict=True):
                    self._inventory.take_in(directory, name, tp, state)
                await self._sync_recovered(tp for _, tp in group)
                before, done = done, done + len(group)
                if done // 1000 > before // 1000 or (done == len(wanted) and done > LOADED_TOGETHER):
                    self._note(f"{directory.path}: {done} of {len(wanted)} logs loaded")

        await asyncio.gather(*(worker() for _ in range(self.settings.recovery_threads_per_dir)))

    async def _sync_recovered(self, tps: Iterable[TopicPartition]) -> None:
        """Where records are synced before they are acknowledged, what only a kill left unsynced is synced, too.

        A leader alone in its ISR shows it at once: it must not be gone after a loss of power.
        """
        for log in filter(None, map(self._inventory.logs.get, tps)):
            if log.owes_sync:
                with suppress(StorageError):
                    await self._upkeep.flush(log)

    # -- making and removing --------------------------------------------------------------------------------

    def get_or_create(
        self,
        tp: TopicPartition,
        topic_id: TopicId | None,
        config: TopicConfig,
        is_new: bool,
        directory: str | None = None,
    ) -> PartitionLog:
        """Return the replica's log, made in the directory with the fewest (or in `directory`) where there is none.

        Raises StorageError where it cannot be: no room for more, damaged, or a replica that is not new while a
        directory is offline that may have it.
        """
        return self._inventory.get_or_create(tp, topic_id, config, is_new, directory)

    def delete(self, tp: TopicPartition) -> None:
        """Take a replica away: its directory is renamed now and removed after file.delete.delay.ms."""
        self._inventory.delete(tp)

    def set_aside(self, tp: TopicPartition) -> str:
        """Give a replica an empty log, of which no checkpoint says what was true of the old one; returns where that is
        kept. Raises StorageError."""
        old = self._inventory.logs[tp]
        kept = self._inventory.set_aside(tp)
        log = self._inventory.get_or_create(tp, old.topic_id, old.config, True, None)
        self._upkeep.cut(log, log.log_end_offset)
        return kept

    # -- moving between directories -------------------------------------------------------------------------

    def begin_move(self, tp: TopicPartition, directory: str) -> PartitionLog | None:
        """Let a replica move to that log directory: see `Inventory.begin_move`."""
        return self._inventory.begin_move(tp, directory)

    def resume_move(self, tp: TopicPartition) -> bool:
        """Whether a move was under way when the broker stopped, and goes on."""
        return self._inventory.resume_move(tp)

    async def prepare_promotion(self, tp: TopicPartition) -> None:
        """Make the future log as durable as the log is, checkpoints included, and mark it. Raises StorageError."""
        log, future = self.get(tp), self.future(tp)
        if log is None or future is None:
            return
        directory = self._directories.of(future.directory)
        await self._upkeep.flush(future)
        for name in (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS):
            await self._upkeep.write(directory, name)
        cleaned = self._directories.of(log.directory).offsets[layout.CLEANER_OFFSETS].get(tp)
        if cleaned is not None or tp in directory.offsets[layout.CLEANER_OFFSETS]:
            await self._upkeep.set_cleaner_offset(future, cleaned or 0)
        await self._run(partial(moves.mark, self._disk, future.directory))

    def promote(self, tp: TopicPartition) -> PartitionLog:
        """Put the future log in the log's place; returns it. Both end at the same offset. Raises StorageError."""
        left = self._directories.of(self._inventory.logs[tp].directory)
        log = self._inventory.promote(tp)
        self._chores.spawn(self._upkeep.write(left, layout.CLEANER_OFFSETS))  # where it lies now has it
        roots = (self._directories.of(log.directory).root, left.root)
        self._later(0, partial(moves.unmark, self._disk, roots, log.directory))
        return log

    def _cut(self, log: PartitionLog, offset: int) -> None:
        if log.reload is not None:
            self._chores.keep(partial(self._reload, log, log.reload))
        if log.is_future:
            return
        if (future := self.future(log.tp)) is not None:
            future.truncate_to(offset)
        self.on_cut(log.tp, offset)

    async def _reload(self, log: PartitionLog, reload: Reload) -> None:
        """Until it is done a follower takes nothing in: what goes wrong is tried again."""
        if log.reload is reload and log.failure is None:
            await self._run(reload.run)
            log.finish_reload(reload)

    # -- looking after --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the periodic work; call it on the event loop, after `load`."""
        settings, upkeep = self.settings, self._upkeep
        flush_look = min(settings.flush_scheduler_interval_ms, FLUSH_LOOK_MS_MAX)
        first_ms = settings.initial_task_delay_ms
        self._chores.every(settings.retention_check_interval_ms, upkeep.retire_segments, first_ms)
        self._chores.every(flush_look, upkeep.flush_overdue)
        for interval, name in (
            (settings.recovery_point_checkpoint_interval_ms, layout.RECOVERY_POINTS),
            (settings.log_start_checkpoint_interval_ms, layout.LOG_STARTS),
            (settings.high_watermark_checkpoint_interval_ms, layout.HIGH_WATERMARKS),
            (settings.recovery_point_checkpoint_interval_ms, layout.CLEANER_OFFSETS),  # without what was deleted
        ):
            self._chores.every(interval, partial(upkeep.checkpoint, name))
        self._chores.every(
            settings.producer_id_expiration_check_interval_ms,
            lambda: upkeep.expire_producers(self.producer_id_expiration_ms),
        )
        self._chores.keep(self._flush_waiting)

    async def checkpoint_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint` in every directory where it has changed."""
        await self._upkeep.checkpoint(layout.HIGH_WATERMARKS)

    async def set_cleaner_offset(self, tp: TopicPartition, offset: int) -> None:
        """Note up to where a log is cleaned, durably: the last step of a swap. Raises StorageError."""
        if (log := self.get(tp)) is None:
            raise StorageError(f"{tp}: has no log here")
        await self._upkeep.set_cleaner_offset(log, offset)

    async def _flush_waiting(self) -> None:
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted.clear()
            await self._upkeep.flush_waiting()

    async def _in_thread(self, work: Callable[[], object]) -> None:
        try:
            await self._run(work)
        except StorageError as error:
            self._note(str(error))

    def _later(self, delay_ms: int, work: Callable[[], object]) -> None:
        """Do something in a thread after a while; what is not done by the end is done at the next start."""
        self._chores.later(delay_ms, lambda: self._in_thread(work))

    # -- failing and ending ---------------------------------------------------------------------------------

    def _disk_failed(self, error: DiskError) -> None:
        """Told by the disk, in whatever thread the call was."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._fail_directory, error)

    def _fail_directory(self, error: DiskError) -> None:
        with suppress(KeyError):  # an error elsewhere takes no log directory with it
            self._take_offline(self._directories.of(error.path), error)

    def _take_offline(self, directory: LogDirectory, error: StorageError) -> None:
        if not directory.online:
            return
        directory.online = False
        self._note(f"{directory.path}: offline from now on: {error}")
        self._on_offline(directory.path, self._inventory.lose(directory, error))

    async def close(self) -> None:
        """Flush and close every log, write the checkpoints, and mark what is whole as closed cleanly."""
        await self._chores.stop()
        for directory in self._directories.online:
            if self._loaded:
                try:
                    await self._close_directory(directory)
                except (StorageError, FileNotFoundError) as error:
                    self._note(f"{directory.path}: not closed cleanly: {error}")
        self._inventory.clear()
        for directory in self._directories.all:
            directory.unlock()

    async def _close_directory(self, directory: LogDirectory) -> None:
        logs = [log for log in self._inventory.everything() if directory.holds(log.directory)]
        offsets = {name: self._upkeep.offsets(directory, name) for name in layout.CHECKPOINTS}
        waiting = iter(logs)

        async def worker() -> None:
            for log in waiting:
                await self._run(log.close)

        await asyncio.gather(*(worker() for _ in range(CLOSED_TOGETHER)))
        offsets[layout.RECOVERY_POINTS] = {log.tp: log.recovery_point for log in logs}
        for name in layout.CHECKPOINTS:
            await self._run(partial(directory.write_now, name, offsets[name]))
        if not self._inventory.broken:
            await self._run(directory.mark_clean)
