"""The machine's own disk: the port over system calls."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NoReturn

from logyard.broker.log.disk import page_cache
from logyard.broker.log.disk.port import Buffer, DirectoryLocked, DiskEntry, DiskError, DiskFile, FileStatus

# Errors of link(2) on a file system that does not support, or does not permit, a second name: not a disk failure.
_UNLINKABLE = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP})


class OsFile:
    """A file of the operating system, by its descriptor."""

    __slots__ = ("_disk", "_fd", "_pages", "path")

    def __init__(self, disk: "OsDisk", path: str, fd: int) -> None:
        self._disk = disk
        self._fd = fd
        self._pages: page_cache.FilePages | Literal[False] | None = False  # what is in memory; not asked yet
        self.path = path

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self._fd)

    def write_at(self, data: Buffer, position: int) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                self._write_rest(memoryview(data), position, written)
            if self._pages:
                self._pages.written(len(data), position)
        except OSError as error:
            self._disk.fail(self.path, error)

    def _write_rest(self, data: memoryview, position: int, written: int) -> None:
        while written < len(data):
            more = os.pwrite(self._fd, data[written:], position + written)
            if more == 0:
                raise OSError(errno.EIO, "nothing was written")
            written += more

    def read_at(self, size: int, position: int) -> bytes:
        if self._pages:
            self._pages.come()
        try:
            data = os.pread(self._fd, size, position)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            self._disk.fail(self.path, error)
        return data

    def read_nowait(self, size: int, position: int) -> memoryview | None:
        buffer = bytearray(size)
        try:
            got = os.preadv(self._fd, (buffer,), position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                self._disk.fail(self.path, error)
            got = -1
        if got == size:
            return memoryview(buffer)
        if self._pages:
            self._pages.come()  # what is not there is read ahead now
        return None

    def warm(self, size: int, position: int) -> bool:
        pages = self._known_pages()
        try:
            return pages is not None and pages.bring(size, position)
        except OSError as error:
            self._disk.fail(self.path, error)

    def sendable(self, size: int, position: int) -> int | None:
        pages = self._known_pages()
        return self._fd if pages is not None and pages.are_in_memory(size, position) else None

    def _known_pages(self) -> page_cache.FilePages | None:
        if self._pages is False:
            self._pages = page_cache.pages_of(self._fd)
        return self._pages

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            self._disk.fail(self.path, error)

    def size(self) -> int:
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            self._disk.fail(self.path, error)

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._disk.fail(self.path, error)

    def set_attribute(self, name: str, value: bytes) -> None:
        try:
            os.setxattr(self._fd, f"user.{name}", value)
        except OSError as error:
            self._without_attributes(error)

    def attribute(self, name: str) -> bytes | None:
        try:
            return os.getxattr(self._fd, f"user.{name}")
        except OSError as error:
            self._without_attributes(error)
            return None

    def _without_attributes(self, error: OSError) -> None:
        """Many a file system has none, or no room for one; only a broken disk is an error."""
        if error.errno == errno.EIO:
            self._disk.fail(self.path, error)


class OsDisk:
    """The machine's own file systems."""

    def __init__(self) -> None:
        self.on_failure: Callable[[DiskError], None] | None = None

    def fail(self, path: str, error: OSError) -> NoReturn:
        """Raise FileNotFoundError as it is, and any other OSError as DiskError."""
        if isinstance(error, FileNotFoundError):
            raise error
        failure = DiskError(path, error)
        if self.on_failure is not None and not failure.is_passing:
            self.on_failure(failure)
        raise failure from error

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        try:
            return OsFile(self, path, os.open(path, flags, 0o644))
        except FileNotFoundError as error:
            if create:
                # The directory is gone: the caller has to know, but the disk did not fail.
                raise DiskError(path, error) from error
            raise
        except OSError as error:
            self.fail(path, error)

    def list(self, path: str) -> list[DiskEntry]:
        try:
            with os.scandir(path) as entries:
                return sorted(DiskEntry(e.name, e.is_dir(follow_symlinks=False)) for e in entries)
        except OSError as error:
            self.fail(path, error)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self.fail(path, error)
        return True

    def status(self, path: str) -> FileStatus:
        try:
            found = os.stat(path)
        except OSError as error:
            self.fail(path, error)
        return FileStatus(found.st_size, found.st_mtime_ns // 1_000_000, found.st_ino)

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except OSError as error:
            self.fail(old, error)

    def link(self, existing: str, new: str) -> None:
        try:
            os.link(existing, new)
        except OSError as error:
            if error.errno in _UNLINKABLE:
                raise DiskError(existing, error) from error
            self.fail(existing, error)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        try:
            os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
        except OSError as error:
            self.fail(path, error)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError as error:
            self.fail(path, error)

    def remove_tree(self, path: str) -> None:
        with suppress(OSError):
            os.rmdir(path)  # takes no file descriptor, if it is empty
            return
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fail(path, error)

    def make_directory(self, path: str, within: str = "/") -> None:
        try:
            if within == "/":
                os.makedirs(path, exist_ok=True)
                return
            made = within
            for part in path.removeprefix(within).strip("/").split("/"):
                made = f"{made}/{part}"
                with suppress(FileExistsError):
                    os.mkdir(made)
        except OSError as error:
            self.fail(path, error)

    def sync_directory(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fail(path, error)
        try:
            os.fsync(fd)
        except OSError as error:
            self.fail(path, error)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Callable[[], None]:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.fail(path, error)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise DirectoryLocked(path) from error
        return lambda: os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        try:
            found = os.statvfs(path)
        except OSError as error:
            self.fail(path, error)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                return file.read().strip()
        except OSError:
            return ""
