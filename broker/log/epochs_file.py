"""The file of a log's leader epochs, `leader-epoch-checkpoint`."""

from collections.abc import Iterator
from contextlib import contextmanager

from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, DiskFile


class EpochsFile:
    """Replaces the file without a sync: the change survives the end of the process, not a crash of the machine."""

    __slots__ = ("_disk", "_next")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._next: DiskFile | None = None  # the file that replaces it, if that is open already

    def write(self, directory: str, data: bytes) -> str:
        """Replace the file of a log's directory; returns its path. Raises DiskError."""
        path = f"{directory}/{layout.LEADER_EPOCHS}"
        file, self._next = self._next or self._open(path), None
        file.truncate(0)
        file.write_at(data, 0)
        self._disk.rename(path + layout.TEMPORARY, path)
        return path

    @contextmanager
    def ready(self, directory: str) -> Iterator[None]:
        """Within, one `write` of that directory's file opens nothing. Raises DiskError on entering."""
        self._next = self._open(f"{directory}/{layout.LEADER_EPOCHS}")
        try:
            yield
        finally:
            self._next = None

    def _open(self, path: str) -> DiskFile:
        return self._disk.open(path + layout.TEMPORARY, create=True, write=True)
