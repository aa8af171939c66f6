"""The disk's twin in memory: it can lose what was not synced, stop at a chosen operation, and fail.

What it keeps of a real machine:
- killing the process (`restart()`) keeps all; losing power (`restart(choose)`) of each file's unsynced pages any
  subset, of each directory's unsynced changes any prefix;
- `stop_at = n` stops the machine in the n-th changing operation: a write may be torn, anything else is not done;
- `fail(prefix, code)` makes everything below a path answer with that errno until `heal()`.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from logyard.broker.log.disk.port import Buffer, DirectoryLocked, DiskEntry, DiskError, DiskFile, FileStatus

PAGE = 4096

Choose = Callable[[int], int]
"""Given n, any number from 0 to n - 1: where the twin may decide, the test's random source does."""


class MachineStopped(BaseException):
    """The machine is off: nothing runs until `restart`. Not an Exception, so that no handler swallows it."""


@dataclass(eq=False)
class _Inode:
    """A file: what it holds now, what would be left of it, and which byte ranges differ.

    `rewrites` counts the changes to bytes that were there: as long as it stands, what was read once is still so.
    """

    number: int
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    durable: bytearray = field(default_factory=bytearray)
    durable_size: int = 0
    dirty: list[tuple[int, int]] = field(default_factory=list)
    mtime_ms: int = 0
    rewrites: int = 0

    def write(self, data: Buffer, position: int) -> None:
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        elif position < len(self.data):
            self.rewrites += 1
        self.data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))
        self.dirty.append((position, len(data)))

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            self.dirty.append((size, len(self.data) - size))
            self.rewrites += 1
            del self.data[size:]
        self.size = size

    def read(self, size: int, position: int) -> bytes:
        end = min(position + size, self.size)
        stored = bytes(self.data[position:end])
        return stored + bytes(max(0, end - position) - len(stored))

    def sync(self) -> None:
        for position, length in self.dirty:
            _copy(self.data, self.durable, position, length)
        del self.durable[self.size :]
        self.durable_size = self.size
        self.dirty.clear()

    def lose_power(self, choose: Choose) -> None:
        """Let every unsynced page, and the size, end up old or new."""
        pages = {
            page for start, length in self.dirty for page in range(start // PAGE, (start + length - 1) // PAGE + 1)
        }
        for page in sorted(pages):
            if choose(2):
                _copy(self.data, self.durable, page * PAGE, PAGE)
        sizes = (self.durable_size, self.size, (self.durable_size + self.size) // 2)
        self.size = self.durable_size = sizes[choose(3)]
        del self.durable[self.size :]
        self.data = bytearray(self.durable)
        self.rewrites += 1
        self.dirty.clear()


def _copy(source: bytearray, target: bytearray, position: int, length: int) -> None:
    piece = source[position : position + length].ljust(length, b"\0")
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + length] = piece


@dataclass(eq=False)
class _Change:
    """One change of a directory: a name set to a node, or (None) taken away; `needs` must survive as well."""

    name: str
    node: "_Inode | _Directory | None"
    needs: "_Change | None" = None


@dataclass(eq=False)
class _Directory:
    entries: dict[str, "_Inode | _Directory"] = field(default_factory=dict)
    durable: dict[str, "_Inode | _Directory"] = field(default_factory=dict)
    journal: list[tuple[_Change, ...]] = field(default_factory=list)

    def change(self, *changes: _Change) -> None:
        for change in changes:
            _apply(self.entries, change)
        self.journal.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.journal.clear()


def _apply(entries: dict[str, "_Inode | _Directory"], change: _Change) -> None:
    if change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node


class MemoryFile:
    """An open file; dead once the machine has been stopped."""

    def __init__(self, disk: "MemoryDisk", path: str, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._boot = disk.boots

    def write_at(self, data: Buffer, position: int) -> None:
        self._disk.step(self.path, self._boot, lambda choose: self._torn(choose, data, position))
        self._inode.write(data, position)
        self._inode.mtime_ms = self._disk.now_ms()

    def _torn(self, choose: Choose, data: Buffer, position: int) -> None:
        self._inode.write(bytes(data[: choose(len(data) + 1)]), position)

    def read_at(self, size: int, position: int) -> bytes:
        self._disk.look(self.path, self._boot)
        return self._inode.read(size, position)

    def read_nowait(self, size: int, position: int) -> memoryview | None:
        self._disk.look(self.path, self._boot)
        data = self._inode.read(size, position)
        return memoryview(data) if len(data) == size and not self._disk.cold else None

    def truncate(self, size: int) -> None:
        self._disk.step(self.path, self._boot)
        self._inode.truncate(size)

    def size(self) -> int:
        self._disk.look(self.path, self._boot)
        return self._inode.size

    def sync(self) -> None:
        self._disk.step(self.path, self._boot)
        self._disk.syncs += 1
        self._inode.sync()


class MemoryDisk:
    """A file system in memory. `cold` makes every read_nowait miss; `operations` counts changes, `syncs` the syncs."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0, choose: Choose = lambda _n: 0) -> None:
        self.on_failure: Callable[[DiskError], None] | None = None
        self.now_ms = now_ms
        self.cold = False
        self.boots = self.power_losses = 0
        self.operations = 0
        self.syncs = 0
        self.stop_at: int | None = None
        self.fail_at: dict[int, int] = {}
        self.total_bytes, self.usable_bytes = 1 << 40, 1 << 39
        self._choose = choose
        self._root = _Directory()
        self._walked: dict[str, _Directory] = {}  # by path, until a directory is moved or goes
        self._failing: dict[str, int] = {}
        self._locks: set[str] = set()
        self._inodes = 0
        self._stopped = False

    # -- faults ---------------------------------------------------------------------------------------------

    def fail(self, prefix: str, code: int = errno.EIO) -> None:
        """From now on everything at or below `prefix` fails with that errno."""
        self._failing[prefix] = code

    def heal(self) -> None:
        self._failing.clear()

    def restart(self, choose: Choose | None = None) -> None:
        """Start again: after a kill (nothing written is lost), or with `choose` after a power loss."""
        self.boots += 1
        self._stopped = False
        self.stop_at = None
        self._locks.clear()
        if choose is not None:
            self.power_losses += 1
            self._lose_power(choose)

    def boot_id(self) -> str:
        return f"boot {self.power_losses}"

    def _lose_power(self, choose: Choose) -> None:
        self._walked.clear()
        directories: list[_Directory] = []
        inodes: dict[int, _Inode] = {}
        _collect(self._root, directories, inodes, set())
        survived: set[int] = set()
        kept: list[tuple[_Directory, list[tuple[_Change, ...]]]] = []
        for directory in directories:
            prefix = directory.journal[: choose(len(directory.journal) + 1)]
            kept.append((directory, prefix))
            survived.update(id(change) for changes in prefix for change in changes)
        for directory, prefix in kept:
            for changes in prefix:
                for change in changes:
                    if change.needs is None or id(change.needs) in survived:
                        _apply(directory.durable, change)
            directory.entries = dict(directory.durable)
            directory.journal.clear()
        for number in sorted(inodes):
            inodes[number].lose_power(choose)

    def look(self, path: str, boot: int | None = None) -> None:
        """Allow a read, or raise what the faults ask for."""
        if self._stopped or (boot is not None and boot != self.boots):
            raise MachineStopped(path)
        for prefix, code in self._failing.items():
            if path.startswith(prefix):
                self._report(path, code)

    def step(self, path: str, boot: int | None = None, torn: Callable[[Choose], None] | None = None) -> None:
        """Allow and count a change, or raise what the faults ask for."""
        self.look(path, boot)
        self.operations += 1
        if self.operations == self.stop_at:
            self._stopped = True
            if torn is not None:
                torn(self._choose)
            raise MachineStopped(path)
        if code := self.fail_at.get(self.operations):
            self._report(path, code)

    def _report(self, path: str, code: int) -> NoReturn:
        failure = DiskError(path, OSError(code, errno.errorcode.get(code, "I/O error")))
        if self.on_failure is not None and not failure.is_passing:
            self.on_failure(failure)
        raise failure

    # -- names ----------------------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        node = self._find(parent)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node, name

    def _find(self, path: str) -> "_Inode | _Directory | None":
        parent, _, name = path.rpartition("/")
        directory = self._walked.get(parent)
        if directory is None:
            node: _Inode | _Directory | None = self._root
            for part in parent.split("/"):
                if part:
                    node = node.entries.get(part) if isinstance(node, _Directory) else None
            if not isinstance(node, _Directory):
                return None
            directory = self._walked[parent] = node
        return directory.entries.get(name) if name else directory

    def _file(self, path: str) -> _Inode:
        node = self._find(path)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node

    # -- the port -------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        self.look(path)
        try:
            parent, name = self._parent(path)
        except FileNotFoundError as error:
            if create:
                raise DiskError(path, error) from error
            raise
        if create and name not in parent.entries:
            self.step(path)
            self._inodes += 1
            parent.change(_Change(name, _Inode(self._inodes, mtime_ms=self.now_ms())))
        return MemoryFile(self, path, self._file(path))

    def list(self, path: str) -> list[DiskEntry]:
        self.look(path)
        entries = self._directory(path).entries
        return sorted(DiskEntry(name, isinstance(node, _Directory)) for name, node in entries.items())

    def exists(self, path: str) -> bool:
        self.look(path)
        return self._find(path) is not None

    def status(self, path: str) -> FileStatus:
        self.look(path)
        inode = self._file(path)
        return FileStatus(inode.size, inode.mtime_ms, inode.number)

    def rename(self, old: str, new: str) -> None:
        self.step(old)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node = source.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        if isinstance(node, _Directory):
            self._walked.clear()
        there = target.entries.get(new_name)
        if isinstance(there, _Directory) and there.entries:
            self._report(old, errno.ENOTEMPTY)
        if there is node:
            return  # two names of one file: rename(2) leaves both
        arrival = _Change(new_name, node)
        if source is target:
            source.change(_Change(old_name, None), arrival)
        else:
            target.change(arrival)
            source.change(_Change(old_name, None, needs=arrival))

    def link(self, existing: str, new: str) -> None:
        self.step(existing)
        inode = self._file(existing)
        parent, name = self._parent(new)
        if name in parent.entries:
            self._report(new, errno.EEXIST)
        parent.change(_Change(name, inode))

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self.step(path)
        self._file(path).mtime_ms = mtime_ms

    def remove(self, path: str) -> None:
        self.step(path)
        self._file(path)
        parent, name = self._parent(path)
        parent.change(_Change(name, None))

    def remove_tree(self, path: str) -> None:
        self.step(path)
        if self._find(path) is not None:
            parent, name = self._parent(path)
            self._walked.clear()
            parent.change(_Change(name, None))

    def make_directory(self, path: str, within: str = "/") -> None:
        self.look(path)
        node = self._directory(within)
        for part in path.removeprefix(within).strip("/").split("/"):
            if part not in node.entries:
                self.step(path)
                node.change(_Change(part, _Directory()))
            below = node.entries[part]
            if not isinstance(below, _Directory):
                self._report(path, errno.ENOTDIR)
            node = below

    def sync_directory(self, path: str) -> None:
        self.step(path)
        self.syncs += 1
        node = self._find(path)
        if isinstance(node, _Directory):
            node.sync()

    def lock(self, path: str) -> Callable[[], None]:
        self.look(path)
        if path in self._locks:
            raise DirectoryLocked(path)
        self.open(path, create=True)
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    def space(self, path: str) -> tuple[int, int]:
        self.look(path)
        return self.total_bytes, self.usable_bytes


def _collect(directory: _Directory, directories: list[_Directory], inodes: dict[int, _Inode], seen: set[int]) -> None:
    """Gather everything reachable now or after a power loss."""
    directories.append(directory)
    seen.add(id(directory))
    nodes = [*directory.entries.values(), *directory.durable.values()]
    nodes += [change.node for changes in directory.journal for change in changes if change.node is not None]
    for node in nodes:
        if isinstance(node, _Inode):
            inodes[node.number] = node
        elif id(node) not in seen:
            _collect(node, directories, inodes, seen)
