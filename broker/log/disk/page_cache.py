"""Which bytes of a file are in memory: what is there is read, or sent, without waiting for the disk.

mincore(2) tells it of each page, for some 25 µs a megabyte; cachestat(2) counts pages, for one, but those too that are
on their way from the disk. A page that has come once is whole as long as it is in memory. So what mincore has found is
only counted from then on; what a system without cachestat (before Linux 6.5) tells is asked of mincore each time.
"""

import errno
import os
from functools import cache
from typing import Any

from logyard.broker.late_import import imported_when_used

with imported_when_used("ctypes", "mmap"):
    import ctypes
    import mmap

_PAGE = os.sysconf("SC_PAGE_SIZE")
CACHESTAT = 451  # the call's number, on all processors but Alpha; no library has its name yet
_NOTHING = (0, 0)
# Errors of sendfile(2) where the system, or the file system, cannot do it.
_UNSENDABLE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class Calls:
    """The system's calls; they keep the interpreter, as none of them waits."""

    def __init__(self) -> None:
        library: Any = ctypes.PyDLL(None)
        size, offset = ctypes.c_size_t, ctypes.c_int64
        self.mmap, self.munmap, self.mincore = library.mmap64, library.munmap, library.mincore
        self._failed = ctypes.c_void_p(-1).value
        self._kind = mmap.PROT_READ, mmap.MAP_SHARED
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = [ctypes.c_void_p, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, offset]
        self.munmap.argtypes = [ctypes.c_void_p, size]
        self.mincore.argtypes = [ctypes.c_void_p, size, ctypes.c_char_p]
        self._cachestat = library.syscall
        self._range, self._counts = ctypes.c_uint64 * 2, ctypes.c_uint64 * 5

    def are_counted(self, fd: int, size: int, position: int) -> bool:
        """Whether all pages of these bytes are in the page cache, or on their way there."""
        counts = self._counts()
        asked = self._range(position, size)
        if self._cachestat(CACHESTAT, fd, asked, counts, 0):
            return False
        return bool(counts[0] == (position + size - 1) // _PAGE - position // _PAGE + 1)

    def are_in_memory(self, fd: int, size: int, position: int) -> bool:
        """Whether all pages of these bytes are in the page cache, and not on their way there."""
        start = position - position % _PAGE
        length = position + size - start
        pages = ctypes.create_string_buffer(-(-length // _PAGE))
        # No page is ever touched by way of this address, so none is mapped.
        address = self.mmap(None, length, *self._kind, fd, start)
        if address == self._failed:
            return False
        try:
            return self.mincore(address, length, pages) == 0 and b"\0" not in pages.raw
        finally:
            self.munmap(address, length)


@cache
def calls() -> Calls | None:
    """Return the calls; None where they are not there, or where pages that nobody has written are said to be there."""
    try:
        made = Calls()
        fd = os.memfd_create("logyard")
    except (OSError, AttributeError):
        return None
    try:
        os.ftruncate(fd, _PAGE)
        return None if made.are_in_memory(fd, _PAGE, 0) else made
    except OSError:
        return None
    finally:
        os.close(fd)


@cache
def nowhere() -> int | None:
    """A descriptor that takes bytes to nowhere, kept for good; None where the system has none."""
    try:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return None


class FilePages:
    """What is in memory of one open file. Pages that were found there, all in one row, are only counted again.

    The event loop asks and threads read, without a lock. A thread ends the row before its read begins, so a row that is
    still the same one after a question held during it; another is not put in its place. (Where nothing is called
    between a look at the row and a store, no other thread has a turn: the interpreter changes them at calls and loops.)
    """

    __slots__ = ("_calls", "_fd", "_found")

    def __init__(self, calls: Calls, fd: int) -> None:
        self._calls, self._fd = calls, fd
        self._found = _NOTHING  # from, to

    def are_in_memory(self, size: int, position: int) -> bool:
        """Whether all of these bytes are in memory."""
        end = position + size
        found = self._found
        begin, behind = found
        is_counted = begin <= position and end <= behind and self._calls.are_counted(self._fd, size, position)
        if is_counted and self._found is found:
            return True
        if not self._calls.are_in_memory(self._fd, size, position):
            self._found = _NOTHING
            return False
        touches = position <= behind and begin <= end
        row = (min(begin, position), max(behind, end)) if touches and behind else (position, end)
        if self._found is found:
            self._found = row
        return True

    def bring(self, size: int, position: int) -> bool:
        """Wait until these bytes, as far as the file has them, are in memory; returns False where that cannot be done
        without a copy of them. Raises OSError. Safe in a thread."""
        self.come()
        null = nowhere()
        if null is None:
            return False
        end = position + size
        try:
            # As by a read, but without its copy. POSIX_FADV_WILLNEED fills memory in small pages: twice a read's CPU.
            while position < end and (sent := os.sendfile(null, self._fd, position, end - position)):
                position += sent
        except OSError as error:
            if error.errno in _UNSENDABLE:
                return False
            raise
        return True

    def written(self, size: int, position: int) -> None:
        """Note that these bytes were written: they are in memory."""
        begin, behind = self._found
        if position == behind and behind:
            self._found = (begin, position + size)

    def come(self) -> None:
        """Note that pages come from the disk now: one that was dropped may be on its way again. They come, too, where a
        read that does not wait for the disk finds nothing."""
        self._found = _NOTHING


def pages_of(fd: int) -> FilePages | None:
    """What is in memory of this file; None where the system does not tell it: of files of others it says that all is.
    The file has to stay open."""
    known = calls()
    if known is None:
        return None
    try:
        owner = os.fstat(fd).st_uid
        os.preadv(fd, (bytearray(1),), 0, os.RWF_NOWAIT)
    except BlockingIOError:
        pass  # it is not in memory now
    except OSError:
        return None  # a file system that asks its server, whatever is in memory
    return FilePages(known, fd) if os.geteuid() in (0, owner) else None
