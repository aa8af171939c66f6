"""Which bytes of a file are in memory: what is there is read, or sent, without waiting for the disk (mincore(2))."""

import os
from functools import cache
from typing import Any

from logyard.broker.late_import import imported_when_used

with imported_when_used("ctypes", "mmap"):
    import ctypes
    import mmap

_PAGE = os.sysconf("SC_PAGE_SIZE")


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


def can_tell(fd: int) -> bool:
    """Whether the system knows of this file what is in memory, and tells it: of files of others it says that all is."""
    if calls() is None:
        return False
    try:
        owner = os.fstat(fd).st_uid
        os.preadv(fd, (bytearray(1),), 0, os.RWF_NOWAIT)
    except BlockingIOError:
        pass  # it is not in memory now
    except OSError:
        return False  # a file system that asks its server, whatever is in memory
    return os.geteuid() in (0, owner)


def is_in_memory(fd: int, size: int, position: int) -> bool:
    """Whether all of these bytes are in memory. Ask `can_tell` first, once a file."""
    known = calls()
    return known is not None and known.are_in_memory(fd, size, position)
