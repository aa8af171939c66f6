"""One log directory: its owner, its mark of a clean shutdown, its checkpoints, its partitions (facts §12, §13).

Rule 1: a checkpoint is replaced atomically, by one writer at a time; a newer write discards a slower older one.
Rule 2: the mark of a clean shutdown is removed before any log is opened, and written only when all are closed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logyard.broker.errors import CorruptData, LogyardError, StorageError
from logyard.broker.log import checkpoints, layout
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.disk.port import Disk, read_whole, stage, write_whole
from logyard.broker.log.layout import DirectoryKind
from logyard.broker.model import TopicPartition

Offsets = dict[TopicPartition, int]

# Losing one of these makes the start or retention slower; a damaged one of the others puts the directory offline.
_MAY_BE_LOST = frozenset({layout.RECOVERY_POINTS, layout.LOG_STARTS})


class IdentityMismatch(LogyardError):
    """A log directory belongs to another broker or cluster, or the directories differ; nothing in them is changed."""


@dataclass(slots=True)
class DirectoryContents:
    """The entries of a log directory: the names of live, future and deleted partition directories, each with its
    partition, and the paths of directories that belong to no replica."""

    live: list[tuple[str, TopicPartition]] = field(default_factory=list)
    future: list[tuple[str, TopicPartition]] = field(default_factory=list)
    deleted: list[tuple[str, TopicPartition]] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


class DuplicateReplica(StorageError):
    """One replica lies in two log directories, and an operator has to decide which one counts."""


class LogDirectory:
    """A log directory. `path` is as configured; `replicas` is how many lie in it.

    `same_boot`: the machine has not restarted since the logs were last loaded, as far as is known, so no write was
    lost.

    All methods wait for the disk, and raise DiskError.
    """

    def __init__(self, disk: Disk, path: str, note: Callable[[str], None]) -> None:
        self.disk = disk
        self.path = path
        self.root = path.rstrip("/")
        self.note = note
        self.online = True
        self.clean = False
        self.same_boot = True
        self.replicas = 0
        self.identity: DirectoryIdentity | None = None
        self.offsets: dict[str, Offsets] = {}
        self._staged: dict[str, Offsets] = {}
        self._release: Callable[[], None] | None = None
        self._versions: dict[str, int] = {}

    def holds(self, path: str) -> bool:
        """Whether a path lies in this directory."""
        return path == self.root or path.startswith(self.root + "/")

    def _at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def open(self) -> None:
        """Create the directory if missing, lock it, read its owner. Raises DiskError, DirectoryLocked, CorruptData."""
        if not self.disk.exists(self.root):
            self.disk.make_directory(self.root)
            self.disk.sync_directory(self.root.rpartition("/")[0] or "/")
        self._release = self.disk.lock(self._at(layout.LOCK))
        try:
            data = read_whole(self.disk, self._at(layout.META_PROPERTIES))
        except FileNotFoundError:
            return
        try:
            self.identity = checkpoints.decode_meta_properties(data)
        except CorruptData as error:
            raise CorruptData(f"{self._at(layout.META_PROPERTIES)}: {error}") from error

    def unlock(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None

    def claim(self, identity: DirectoryIdentity, now_ms: int) -> None:
        """Write the owner; other keys in the file, such as Kafka's directory.id, are kept."""
        extra = {} if self.identity is None else self.identity.extra
        kept = DirectoryIdentity(identity.broker_id, identity.cluster_id, extra)
        if kept != self.identity:
            write_whole(self.disk, self._at(layout.META_PROPERTIES), checkpoints.encode_meta_properties(kept, now_ms))
            self.identity = kept

    def begin(self) -> DirectoryContents:
        """Start loading: remove the clean mark, read the checkpoints, list the directory.

        Raises CorruptData if the high watermarks or the cleaner offsets do not parse.
        """
        self.clean = self.disk.exists(self._at(layout.CLEAN_SHUTDOWN))
        if self.clean:
            self.disk.remove(self._at(layout.CLEAN_SHUTDOWN))
            self.disk.sync_directory(self.root)
        noted, boot = self._boot_noted(), self.disk.boot_id().encode()
        # A machine that gives no id may have restarted.
        self.same_boot = noted is None or (noted == boot and boot != b"")
        for name in layout.CHECKPOINTS:
            self.offsets[name] = self._read(name)
        found = DirectoryContents()
        for entry in self.disk.list(self.root):
            if entry.is_directory:
                parsed = layout.parse_directory_name(entry.name)
                if parsed is not None and parsed.kind is DirectoryKind.LIVE:
                    found.live.append((entry.name, parsed.partition))
                elif parsed is not None and parsed.kind is DirectoryKind.FUTURE:
                    found.future.append((entry.name, parsed.partition))
                elif parsed is not None and parsed.kind is DirectoryKind.DELETED:
                    found.deleted.append((entry.name, parsed.partition))
                else:
                    found.strays.append(self._at(entry.name))
        return found

    def note_loaded(self) -> None:
        """Record the machine's boot id: all logs are loaded, and recovered from what this boot may have lost."""
        boot = self.disk.boot_id().encode()
        if self._boot_noted() != boot:
            write_whole(self.disk, self._at(layout.BOOT), boot)

    def _boot_noted(self) -> bytes | None:
        try:
            return read_whole(self.disk, self._at(layout.BOOT))
        except FileNotFoundError:
            return None

    def _read(self, name: str) -> Offsets:
        try:
            return checkpoints.decode_offsets(read_whole(self.disk, self._at(name)))
        except FileNotFoundError:
            return {}
        except CorruptData as error:
            if name not in _MAY_BE_LOST:
                raise CorruptData(f"{self._at(name)}: {error}") from error
            self.note(f"{self._at(name)}: ignored ({error})")
            return {}

    def mark_clean(self) -> None:
        """Write the mark of a clean shutdown: all logs are closed and everything is synced."""
        write_whole(self.disk, self._at(layout.CLEAN_SHUTDOWN), checkpoints.CLEAN_SHUTDOWN)

    # -- checkpoints ----------------------------------------------------------------------------------------

    def mentions(self, name: str, tp: TopicPartition) -> bool:
        """Whether a checkpoint, on disk or being written, has an entry of that replica."""
        return tp in self.offsets.get(name, ()) or tp in self._staged.get(name, ())

    def highest(self, name: str, tp: TopicPartition) -> int:
        """Return the replica's entry in a checkpoint, on disk or being written; 0 if there is none."""
        return max(entries.get(name, {}).get(tp, 0) for entries in (self.offsets, self._staged))

    def begin_write(self, name: str, offsets: Offsets) -> int:
        """Start to write a checkpoint, and return the turn for `finish_write`, which refuses it once a later one was
        given."""
        turn = self.discard_write(name)
        self._staged[name] = offsets
        return turn

    def discard_write(self, name: str) -> int:
        """Have a write in progress discarded."""
        self._staged.pop(name, None)
        self._versions[name] = self._versions.get(name, 0) + 1
        return self._versions[name]

    def end_write(self, name: str, turn: int) -> None:
        """End a write that is not needed, unless a later turn was given."""
        if self._versions[name] == turn:
            self._staged.pop(name, None)

    def stage_write(self, name: str, offsets: Offsets) -> None:
        """Write and sync the new content to a temporary file. May run in a thread, one at a time for each
        checkpoint."""
        stage(self.disk, self._at(name) + layout.TEMPORARY, checkpoints.encode_offsets(offsets))

    def finish_write(self, name: str, offsets: Offsets, turn: int) -> bool:
        """Rename the staged file into place and return True; False if it is out of date. The caller syncs the
        directory."""
        if self._versions[name] != turn:
            return False
        self._staged.pop(name, None)
        self.disk.rename(self._at(name) + layout.TEMPORARY, self._at(name))
        self.offsets[name] = offsets
        return True

    def write_now(self, name: str, offsets: Offsets) -> None:
        """Write a checkpoint at once; a write in progress, of older values, is discarded."""
        self.discard_write(name)
        write_whole(self.disk, self._at(name), checkpoints.encode_offsets(offsets), suffix=".now.tmp")
        self.offsets[name] = offsets

    def remove_leftover(self, name: str) -> None:
        """Remove a partition directory that was renamed to `-delete`."""
        self.disk.remove_tree(self._at(name))


def agreed_identity(directories: list[LogDirectory]) -> DirectoryIdentity | None:
    """Return the owner that the directories name, None if none does. Raises IdentityMismatch if they differ."""
    agreed: DirectoryIdentity | None = None
    for directory in directories:
        mine = directory.identity
        if mine is None or (mine.broker_id is None and mine.cluster_id is None):
            continue
        if agreed is not None and (mine.broker_id, mine.cluster_id) != (agreed.broker_id, agreed.cluster_id):
            raise IdentityMismatch(
                f"{directory.path}: meta.properties says broker {mine.broker_id} of cluster {mine.cluster_id}, "
                f"another log directory says {agreed.broker_id} of {agreed.cluster_id}"
            )
        agreed = mine
    return agreed


class LogDirectories:
    """The log directories of a broker, in the order of the configuration."""

    def __init__(self, disk: Disk, paths: Sequence[str], note: Callable[[str], None]) -> None:
        self.all = [LogDirectory(disk, path, note) for path in paths]

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.all if directory.online]

    def of(self, path: str) -> LogDirectory:
        """Return the directory a path lies in (the innermost one); raises KeyError if it is in none."""
        holding = [directory for directory in self.all if directory.holds(path)]
        if not holding:
            raise KeyError(path)
        return max(holding, key=lambda directory: len(directory.root))

    def emptiest_first(self) -> list[LogDirectory]:
        """The online directories, those with the fewest replicas first."""
        return sorted(self.online, key=lambda directory: directory.replicas)
