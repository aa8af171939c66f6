"""An archive of the classes that ZooKeeper loads, kept beside compiled loops: with it a server starts with a third less
CPU, and tests of running clusters start some fifty.

A JVM of another class path leaves the archive alone, and so does one whose jars are newer.
"""

import fcntl
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.kept_kernels import KERNELS
from tests.support.zookeeper import QUICK_JAVA, ZooKeeperServer

_ARCHIVE = KERNELS / "zookeeper-classes.jsa"
# Else a JVM says that it leaves the archive alone, on its standard output, where jobs write what they found.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def java_options() -> str:
    """What Java is told in JDK_JAVA_OPTIONS, with the archive, which the first who asks makes."""
    with (KERNELS / "zookeeper-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _ARCHIVE.exists():
            _make()
    return f'{QUICK_JAVA} "-XX:SharedArchiveFile={_ARCHIVE}" {_SILENT}' if _ARCHIVE.exists() else QUICK_JAVA


def _make() -> None:
    """None is made where a test would be skipped for what is missing, or where Java is too old (before 13)."""
    with tempfile.TemporaryDirectory(dir=KERNELS) as directory:
        draft = Path(directory) / "classes.jsa"
        server = ZooKeeperServer(Path(directory), options=[f"-XX:ArchiveClassesAtExit={draft}"])
        try:
            server.start()
        except (RuntimeError, OSError, pytest.skip.Exception):
            return
        server.end()
        if draft.exists():
            shutil.move(draft, _ARCHIVE)
