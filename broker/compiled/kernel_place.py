"""Where compiled kernels are kept: numba chooses, or a directory of this user's in one for everybody (/tmp).

Executors have the latter if nobody has said a place (spark_jobs/session.py), and so has a process for which numba finds
none: a system user without a home, in an installation of root's. numba unpickles what it finds there, so it has to be
this user's own: else whoever makes it first has his code run by the user of Spark.
"""

import os
import stat
import tempfile
from contextlib import suppress

CHOSEN = "NUMBA_CACHE_DIR"
PRIVATE = "LOGYARD_PRIVATE_KERNELS"
"""The variable that asks for `own`; one that is CHOSEN comes first."""


def chosen() -> str | None:
    """Return what somebody has chosen, "" where numba is to choose, None where `own` is asked for."""
    place = os.environ.get(CHOSEN, "")
    return place if place or not os.environ.get(PRIVATE) else None


def own() -> str | None:
    """Return this user's own directory, made if it is missing; None if somebody else can write what is there."""
    path = os.path.join(tempfile.gettempdir(), f"logyard-numba-{os.getuid()}")
    with suppress(OSError):  # it is there; or the disk is full, and nothing is kept
        os.mkdir(path, 0o700)
    return path if _is_own(path) else None


def _is_own(path: str) -> bool:
    """Whether it is a directory, not a link to one, that this user alone can write."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    shared = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & shared
