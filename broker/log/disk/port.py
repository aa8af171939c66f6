"""The disk as a port, over the machine's own disk (real.py) or its twin in memory (memory.py).

Rule 1: paths are plain strings. A missing file raises FileNotFoundError. Any other OSError becomes a `DiskError` with
the path, and is first reported to `on_failure`, in whatever thread it happens: a log directory that failed once is no
longer trusted.
Rule 2: nothing is durable before `sync` (a file's bytes) and `sync_directory` (names created, changed, removed).
Rule 3: a file stays readable and writable through an open `DiskFile` even if it is renamed or removed; it closes when
the last reference to it is gone.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from logyard.broker.errors import StorageError

Buffer = bytes | bytearray | memoryview


# Out of file descriptors: a fault of this process or machine, not of the directory.
_WHAT_TO_RAISE = {
    errno.EMFILE: ": raise this process's limit of open files (ulimit -n; LimitNOFILE= in a systemd unit)",
    errno.ENFILE: ": raise the machine's limit of open files (sysctl fs.file-max)",
}


class DiskError(StorageError):
    """An I/O error at a path; `code` is the errno."""

    def __init__(self, path: str, error: OSError) -> None:
        hint = _WHAT_TO_RAISE.get(error.errno or 0, "")
        super().__init__(f"{path}: {error.strerror or error} (errno {error.errno}){hint}")
        self.path = path
        self.code = error.errno or 0
        self.is_passing = self.code in _WHAT_TO_RAISE


class DirectoryLocked(DiskError):
    """Another process holds this directory's lock. The disk is sound, so nothing is reported."""

    def __init__(self, path: str) -> None:
        super().__init__(path, OSError(errno.EAGAIN, "locked by another process"))


class FileStatus(NamedTuple):
    """Size in bytes, time of the last change in ms since 1970, inode number."""

    size: int
    mtime_ms: int
    inode: int


class DiskEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool


class DiskFile(Protocol):
    """An open file. Positions and sizes are bytes."""

    path: str

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data`."""
        ...

    def read_at(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def read_nowait(self, size: int, position: int) -> memoryview | None:
        """Read exactly `size` bytes if they are in memory (page cache); None if reading might wait."""
        ...

    def warm(self, size: int, position: int) -> bool:
        """Wait until the bytes are in memory, without a copy; returns False if `sendable` does not know that then."""
        ...

    def sendable(self, size: int, position: int) -> int | None:
        """Return the file's descriptor if `size` bytes are in memory, so that sending them does not wait; else None.

        None too where it is not known what is in memory, and for a file without a descriptor.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut or (sparsely) lengthen the file."""
        ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Make the bytes written so far, and the attributes, durable (fsync)."""
        ...

    def set_attribute(self, name: str, value: bytes) -> None:
        """Attach a few bytes to the file itself, whatever its names; nothing where the file system keeps none.

        Unsynced they outlive a loss of power if a later change of the file system's own records does: a greater size of
        this file, a name made in its directory.
        """
        ...

    def attribute(self, name: str) -> bytes | None:
        """Return what was attached; None if nothing was, or it was not kept."""
        ...


class Disk(Protocol):
    """A file system."""

    on_failure: Callable[[DiskError], None] | None

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        """Open a file. Raises FileNotFoundError, or DiskError if `create` is set and the directory is gone."""
        ...

    def list(self, path: str) -> list[DiskEntry]:
        """Return a directory's entries, sorted by name."""
        ...

    def exists(self, path: str) -> bool: ...

    def status(self, path: str) -> FileStatus: ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file over `new`, or a directory to a free name, atomically."""
        ...

    def link(self, existing: str, new: str) -> None:
        """Give a file a second name."""
        ...

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time: a file that replaces another may keep its age."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it; no error if it is gone already."""
        ...

    def make_directory(self, path: str, within: str = "/") -> None:
        """Create a directory and its missing parents below `within`; no error if it exists.

        Raises FileNotFoundError if `within` is gone.
        """
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable; no error if the directory is gone."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on a file (created if missing); returns the function that releases it. Raises
        DirectoryLocked."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the file system below a path."""
        ...

    def boot_id(self) -> str:
        """Return a text that differs after each start of the machine; empty if the machine gives none."""
        ...


def read_whole(disk: Disk, path: str) -> bytes:
    """Return a file's content."""
    file = disk.open(path)
    return file.read_at(file.size(), 0)


def stage(disk: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    """Write a file that will be renamed into place."""
    file = disk.open(path, create=True, write=True)
    file.truncate(0)
    file.write_at(data, 0)
    if sync:
        file.sync()


def write_whole(disk: Disk, path: str, data: bytes, *, sync: bool = True, suffix: str = ".tmp") -> None:
    """Replace a file atomically: write `.tmp`, fsync it, rename it, fsync the directory.

    With `sync=False` there is no fsync: the change survives the end of the process but not a crash of the machine,
    until the file and the directory are synced.
    """
    temporary = path + suffix
    stage(disk, temporary, data, sync=sync)
    disk.rename(temporary, path)
    if sync:
        disk.sync_directory(path.rpartition("/")[0])


def remove_if_there(disk: Disk, path: str) -> None:
    """Remove a file; no error if it is gone already."""
    with suppress(FileNotFoundError):
        disk.remove(path)
