"""A run's staging directory: the mark by which others know that the run is alive, and which directories may go.

Rule 1: while a run lives, its process holds a lock on the mark and touches it again and again (BEAT_S).
Rule 2: a staging directory may go when nobody holds its lock and nothing in it was touched for a day (STALE_S), by the
        file system's own clock. Either alone may err: locks of other hosts are not seen on every file system, and
        clocks jump; a directory's own time says nothing, it stands still while files are added below.
"""

import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress

BEAT_S = 60.0
STALE_S = 24 * 3600.0
MARK = ".alive"


class Alive:
    """Keeps the mark of one staging directory, from `with` to its end or the process's."""

    def __init__(self, directory: str) -> None:
        """:param directory: is made if need be."""
        self._mark = os.path.join(directory, MARK)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="staging-mark", daemon=True)
        self._descriptor = -1

    def __enter__(self) -> "Alive":
        os.makedirs(os.path.dirname(self._mark), exist_ok=True)
        self._descriptor = os.open(self._mark, os.O_RDWR | os.O_CREAT, 0o666)
        with suppress(OSError):  # without locks the beats have to do
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(timeout=15)
        os.close(self._descriptor)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            # A disk that is away may come back; the directory goes when its version is published.
            with suppress(OSError):
                os.utime(self._mark)


def stale(root: str, kept: str) -> Iterator[str]:
    """Yield the staging directories under `root` whose runs are dead; never the one named `kept`."""
    names = [name for name in _listed(root) if name != kept and os.path.isdir(os.path.join(root, name))]
    if not names:
        return
    now = _now(root)
    for name in names:
        path = os.path.join(root, name)
        if now - _last_touched(path) > STALE_S and not _is_locked(os.path.join(path, MARK)):
            yield path


def remove(path: str) -> None:
    """Remove a staging directory; what another removes at the same time is no error."""
    shutil.rmtree(path, ignore_errors=True)


def _listed(root: str) -> list[str]:
    return os.listdir(root) if os.path.isdir(root) else []


def _now(root: str) -> float:
    """What time it is where the files are."""
    path = os.path.join(root, f".now.{uuid.uuid4().hex}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        os.unlink(path)


def _last_touched(path: str) -> float:
    """The newest time of anything in a directory; of one that goes meanwhile, now and for ever."""
    try:
        newest = os.stat(path).st_mtime
        for place, _, names in os.walk(path):
            newest = max([newest, os.stat(place).st_mtime, *(os.stat(os.path.join(place, n)).st_mtime for n in names)])
        return newest
    except FileNotFoundError:
        return float("inf")


def _is_locked(mark: str) -> bool:
    """Whether another process says that it lives; False where there is no mark, or no locks."""
    try:
        descriptor = os.open(mark, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
