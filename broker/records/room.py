"""The memory that threads take together while they unpack records of which single ones, or their windows, are large.

Records are unpacked piece by piece, but some need more: a zstd window has up to 128 MiB, a raw snappy block is whole or
nothing, and a large record that is written anew is held. A client decides which, with a request of some kilobytes, and
dozens of threads may be at it, each in its turn. So what is large is unpacked while there is room for it.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from logyard.broker.records import pauses

# Not counted: producers have windows of up to 8 MiB.
SMALL_BYTES = 8 * 1024 * 1024
TOGETHER_BYTES = 512 * 1024 * 1024
# After this time it goes on all the same.
WAIT_S = 60.0


class Room:
    """So many bytes; what needs more than all of them gets them alone."""

    def __init__(self, size: int = TOGETHER_BYTES) -> None:
        self._size = size
        self._used = 0
        self._lock = threading.Lock()
        self._owned: dict[int, int] = {}  # by thread: who closes a stream that was given up may be another

    @property
    def used(self) -> int:
        return self._used

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Have room for `size` bytes; wait for it, with pauses.

        The event loop does not wait, nor who has no pauses, nor a thread that has room: all could wait for each other.

        Raises what a pause raises: the client is gone, or the broker stops.
        """
        if size <= SMALL_BYTES:
            yield
            return
        owner = threading.get_ident()
        deadline = time.monotonic() + WAIT_S
        while not self._take(owner, size, always=not _may_wait() or time.monotonic() > deadline):
            pauses.rest()
        try:
            yield
        finally:
            self._give_back(owner, size)

    def _take(self, owner: int, size: int, *, always: bool) -> bool:
        with self._lock:
            if self._used and self._used + size > self._size and not (always or owner in self._owned):
                return False
            self._used += size
            self._owned[owner] = self._owned.get(owner, 0) + size
            return True

    def _give_back(self, owner: int, size: int) -> None:
        with self._lock:
            self._used -= size
            self._owned[owner] -= size
            if not self._owned[owner]:
                del self._owned[owner]


def _may_wait() -> bool:
    return pauses.are_used() and threading.current_thread() is not threading.main_thread()


ROOM = Room()
"""That of this process."""
