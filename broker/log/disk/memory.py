"""The disk's twin in memory: it can lose what was not synced, stop at a chosen operation, and fail.

How it behaves like a real machine:
- killing the process (`restart()`) keeps everything; losing power (`restart(choose)`) keeps any subset of each file's
  unsynced pages, and any prefix of each directory's unsynced changes, to which the attributes of its files belong;
- `stop_at = n` stops the machine in the n-th changing operation: a write may be torn, any other operation is not done;
- `fail(prefix, code)` makes every operation at or below a path fail with that errno until `heal()`;
- `openings = n` lets n more files or directories be opened, and no more until `heal()`: file descriptors run out.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from logyard.broker.log.disk.memory_nodes import Change, Choose, Directory, Inode, apply, collect, keep_attribute
from logyard.broker.log.disk.port import Buffer, DirectoryLocked, DiskEntry, DiskError, DiskFile, FileStatus


class MachineStopped(BaseException):
    """The machine is off: nothing runs until `restart`. It is not an Exception, so that no handler catches it."""


class MemoryFile:
    """An open file; unusable once the machine has been stopped."""

    def __init__(self, disk: "MemoryDisk", path: str, inode: Inode) -> None:
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

    def warm(self, size: int, position: int) -> bool:
        return False

    def sendable(self, size: int, position: int) -> int | None:
        return None  # no file of the system's

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

    def set_attribute(self, name: str, value: bytes) -> None:
        self._disk.step(self.path, self._boot)
        if self._disk.has_attributes:
            self._disk.attach(self.path, self._inode, name, value)

    def attribute(self, name: str) -> bytes | None:
        self._disk.look(self.path, self._boot)
        return self._inode.attributes.get(name)


class MemoryDisk:
    """A file system in memory. `cold` makes every read_nowait miss; `operations` counts changes, `syncs` the syncs.

    Without `has_attributes` it keeps no attributes, as some file systems do.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0, choose: Choose = lambda _n: 0) -> None:
        self.on_failure: Callable[[DiskError], None] | None = None
        self.now_ms = now_ms
        self.cold = False
        self.has_attributes = True
        self.boots = self.power_losses = 0
        self.operations = 0
        self.syncs = 0
        self.stop_at: int | None = None
        self.openings: int | None = None
        self.fail_at: dict[int, int] = {}
        self.total_bytes, self.usable_bytes = 1 << 40, 1 << 39
        self._choose = choose
        self._root = Directory()
        self._walked: dict[str, Directory] = {}  # by path, until a directory is moved or goes
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
        self.openings = None

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
        directories: list[Directory] = []
        inodes: dict[int, Inode] = {}
        collect(self._root, directories, inodes, set())
        survived: set[int] = set()
        kept: list[tuple[Directory, list[tuple[Change, ...]]]] = []
        for directory in directories:
            prefix = directory.journal[: choose(len(directory.journal) + 1)]
            kept.append((directory, prefix))
            survived.update(id(change) for changes in prefix for change in changes)
        for directory, prefix in kept:
            for changes in prefix:
                for change in changes:
                    keep_attribute(change)
                    if change.needs is None or id(change.needs) in survived:
                        apply(directory.durable, change)
            directory.entries = dict(directory.durable)
            directory.journal.clear()
        for number in sorted(inodes):
            inodes[number].lose_power(choose)

    def look(self, path: str, boot: int | None = None) -> None:
        """Allow a read, or raise the fault that was set up for it."""
        if self._stopped or (boot is not None and boot != self.boots):
            raise MachineStopped(path)
        for prefix, code in self._failing.items():
            if path.startswith(prefix):
                self._report(path, code)

    def step(self, path: str, boot: int | None = None, torn: Callable[[Choose], None] | None = None) -> None:
        """Allow and count a change, or raise the fault that was set up for it."""
        self.look(path, boot)
        self.operations += 1
        if self.operations == self.stop_at:
            self._stopped = True
            if torn is not None:
                torn(self._choose)
            raise MachineStopped(path)
        if code := self.fail_at.get(self.operations):
            self._report(path, code)

    def _take_descriptor(self, path: str) -> None:
        if self.openings is not None:
            if not self.openings:
                self._report(path, errno.EMFILE)
            self.openings -= 1

    def _report(self, path: str, code: int) -> NoReturn:
        failure = DiskError(path, OSError(code, errno.errorcode.get(code, "I/O error")))
        if self.on_failure is not None and not failure.is_passing:
            self.on_failure(failure)
        raise failure

    # -- names ----------------------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        node = self._find(parent)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node, name

    def _find(self, path: str) -> "Inode | Directory | None":
        parent, _, name = path.rpartition("/")
        directory = self._walked.get(parent)
        if directory is None:
            node: Inode | Directory | None = self._root
            for part in parent.split("/"):
                if part:
                    node = node.entries.get(part) if isinstance(node, Directory) else None
            if not isinstance(node, Directory):
                return None
            directory = self._walked[parent] = node
        return directory.entries.get(name) if name else directory

    def inode(self, path: str) -> Inode:
        """Return the file of that name; raises FileNotFoundError."""
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def attach(self, path: str, inode: Inode, name: str, value: bytes) -> None:
        """Give a file an attribute; it is durable with the changes of the directory that the file is in."""
        inode.attributes[name] = value
        with suppress(FileNotFoundError):
            parent, own = self._parent(path)
            parent.change(Change(own, inode, attribute=(name, value)))

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node

    # -- the port -------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        self.look(path)
        self._take_descriptor(path)
        try:
            parent, name = self._parent(path)
        except FileNotFoundError as error:
            if create:
                raise DiskError(path, error) from error
            raise
        if create and name not in parent.entries:
            self.step(path)
            self._inodes += 1
            parent.change(Change(name, Inode(self._inodes, mtime_ms=self.now_ms())))
        return MemoryFile(self, path, self.inode(path))

    def list(self, path: str) -> list[DiskEntry]:
        self.look(path)
        self._take_descriptor(path)
        entries = self._directory(path).entries
        return sorted(DiskEntry(name, isinstance(node, Directory)) for name, node in entries.items())

    def exists(self, path: str) -> bool:
        self.look(path)
        return self._find(path) is not None

    def status(self, path: str) -> FileStatus:
        self.look(path)
        inode = self.inode(path)
        return FileStatus(inode.size, inode.mtime_ms, inode.number)

    def rename(self, old: str, new: str) -> None:
        self.step(old)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node = source.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        if isinstance(node, Directory):
            self._walked.clear()
        there = target.entries.get(new_name)
        if isinstance(there, Directory) and there.entries:
            self._report(old, errno.ENOTEMPTY)
        if there is node:
            return  # two names of one file: rename(2) leaves both
        arrival = Change(new_name, node)
        if source is target:
            source.change(Change(old_name, None), arrival)
        else:
            target.change(arrival)
            source.change(Change(old_name, None, needs=arrival))

    def link(self, existing: str, new: str) -> None:
        self.step(existing)
        inode = self.inode(existing)
        parent, name = self._parent(new)
        if name in parent.entries:
            self._report(new, errno.EEXIST)
        parent.change(Change(name, inode))

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self.step(path)
        self.inode(path).mtime_ms = mtime_ms

    def remove(self, path: str) -> None:
        self.step(path)
        self.inode(path)
        parent, name = self._parent(path)
        parent.change(Change(name, None))

    def remove_tree(self, path: str) -> None:
        self.step(path)
        node = self._find(path)
        if node is not None:
            if isinstance(node, Directory) and node.entries:
                self._take_descriptor(path)  # an empty one goes without
            parent, name = self._parent(path)
            self._walked.clear()
            parent.change(Change(name, None))

    def make_directory(self, path: str, within: str = "/") -> None:
        self.look(path)
        node = self._directory(within)
        for part in path.removeprefix(within).strip("/").split("/"):
            if part not in node.entries:
                self.step(path)
                node.change(Change(part, Directory()))
            below = node.entries[part]
            if not isinstance(below, Directory):
                self._report(path, errno.ENOTDIR)
            node = below

    def sync_directory(self, path: str) -> None:
        self.step(path)
        self._take_descriptor(path)
        self.syncs += 1
        node = self._find(path)
        if isinstance(node, Directory):
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
