"""A disk of a few megabytes under a container's volume: a file that is an ext4 file system, shared with other data."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logyard.local.errors import LocalError

MEGABYTE = 1 << 20


class SmallDisk:
    """The disk, mounted at `mount`. Most of it is taken by a file beside, until `make_room`."""

    def __init__(self, root: Path, free: int) -> None:
        self.mount = root / "volume"
        self.mount.mkdir()
        self._other = root / "other"
        with self._other.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(root).free - free)

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.mount).free

    def make_room(self) -> None:
        """Remove the other data, as who runs the host does."""
        self._other.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int, free: int) -> Iterator[SmallDisk]:
    """Make a disk in the folder, with so many megabytes free. Raises LocalError where there are no loop devices."""
    image, root = folder / "disk.ext4", folder / "disk"
    root.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(megabytes * MEGABYTE)
    _said("mkfs.ext4", "-q", "-m", "0", str(image))
    _said("mount", "-o", "loop", str(image), str(root))
    try:
        yield SmallDisk(root, free * MEGABYTE)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], capture_output=True, check=False)


def _said(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"{' '.join(words)}: {done.stderr.strip()}")
