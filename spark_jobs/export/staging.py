"""A run's staging directory: the mark that tells other runs that it is alive, and which directories may be deleted.

Rule 1: while a run lives, its process holds a lock on the mark and touches it every BEAT_S seconds.
Rule 2: a staging directory may be deleted when nobody holds its lock and nothing in it was touched for STALE_S (a day),
        by the file system's own clock. Neither is enough alone: not every file system shows locks of other hosts, and
        clocks jump. A directory's own time does not count: it does not change when files are added further below.
Rule 3: a draft that a killed writer left under a name of its own may be deleted after as long a time.
"""

import fcntl
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress

BEAT_S = 60.0
STALE_S = 24 * 3600.0
MARK = ".alive"
# A version or a checkpoint before it gets its name, and a file by which the time was told.
_DRAFT = re.compile(r".*\.[0-9a-f]{32}\.tmp|\.now\.[0-9a-f]{32}")


class Alive:
    """Keeps the mark of one staging directory until the `with` block or the process ends."""

    def __init__(self, directory: str) -> None:
        """:param directory: is created if it does not exist."""
        self._mark = os.path.join(directory, MARK)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="staging-mark", daemon=True)
        self._descriptor = -1

    def __enter__(self) -> "Alive":
        os.makedirs(os.path.dirname(self._mark), exist_ok=True)
        self._descriptor = os.open(self._mark, os.O_RDWR | os.O_CREAT, 0o666)
        with suppress(OSError):  # on a file system without locks, touching the mark has to be enough
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(timeout=15)
        os.close(self._descriptor)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            # The disk may come back, or the directory was deleted because its version is published.
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
        if now - _last_touched(path) > STALE_S and not is_locked(os.path.join(path, MARK)):
            yield path


def stale_drafts(directory: str) -> Iterator[str]:
    """Yield the drafts in a directory whose writers are dead. Their own times count (ctime): a link aside has the times
    of the file that it is a link to, and that is old."""
    paths = [os.path.join(directory, name) for name in _listed(directory) if _DRAFT.fullmatch(name)]
    now = _now(directory) if paths else 0.0
    for path in paths:
        with suppress(FileNotFoundError):
            if now - os.stat(path).st_ctime > STALE_S:
                yield path


def remove(path: str) -> None:
    """Delete a staging directory; another run may delete it at the same time."""
    shutil.rmtree(path, ignore_errors=True)


def _listed(root: str) -> list[str]:
    return os.listdir(root) if os.path.isdir(root) else []


def _now(root: str) -> float:
    """Return the time by the clock of the file system that holds `root`."""
    path = os.path.join(root, f".now.{uuid.uuid4().hex}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        os.unlink(path)


def _last_touched(path: str) -> float:
    """Return the newest time of anything in a directory; infinity if it is deleted meanwhile."""
    try:
        newest = os.stat(path).st_mtime
        for place, _, names in os.walk(path):
            newest = max([newest, os.stat(place).st_mtime, *(os.stat(os.path.join(place, n)).st_mtime for n in names)])
        return newest
    except FileNotFoundError:
        return float("inf")


def is_locked(mark: str) -> bool:
    """Whether another process holds the mark's lock; False if there is no mark or the file system has no locks."""
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
