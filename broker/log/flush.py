"""What a flush has to sync besides segments: small files beside them, the directory's names, its own name.

Rule: a change that comes while a flush is under way stays unsynced; so every change counts a version up, and a flush
settles only what it saw.
"""

from typing import NamedTuple

from logyard.broker.log.disk.port import Disk, DiskFile


class SeenUnsynced(NamedTuple):
    """What one flush has seen: the files and directories to be synced, and as of which versions."""

    files: list[DiskFile]
    directories: list[str]
    paths: dict[str, int]
    version: int


class Unsynced:
    """The unsynced names of one partition's directory. `is_new`: the directory's own name is not synced either.

    `is_as_found`: after a clean end nothing has changed in the directory but epochs, in which nothing may be written.
    """

    __slots__ = ("_directory", "_disk", "_own_name", "_paths", "_synced", "_version", "is_as_found")

    def __init__(self, disk: Disk, directory: str, *, synced: bool, is_new: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._paths: dict[str, int] = {}
        self._version = 1
        self._synced = 1 if synced else 0
        self.is_as_found = synced and not is_new
        self._own_name = 1 if is_new else 0  # as of which version the directory has its name, 0: synced

    @property
    def is_clear(self) -> bool:
        """Whether there is nothing to be synced."""
        return not self._paths and self._synced == self._version and not self._own_name

    def note(self, path: str) -> None:
        """Have the next flush sync a small file."""
        self.is_as_found = False
        self.note_epochs(path)

    def note_epochs(self, path: str) -> None:
        """The same of the file of epochs."""
        self._version += 1
        self._paths[path] = self._version

    def names_changed(self) -> None:
        """Have the next flush sync the directory."""
        self.is_as_found = False
        self._version += 1

    def moved_to(self, directory: str) -> None:
        """The directory was renamed: its files have new paths, and its new name is not synced."""
        old = len(self._directory)
        self.names_changed()
        self._paths = {directory + path[old:]: self._version for path in self._paths}
        self._directory = directory
        self._own_name = self._version

    def seen(self) -> SeenUnsynced:
        """Gather what is to be synced now."""
        directories = [self._directory] if self._synced != self._version else []
        if self._own_name:
            directories.append(self._directory.rpartition("/")[0])
        files = [self._disk.open(path) for path in self._paths if self._disk.exists(path)]
        return SeenUnsynced(files, directories, dict(self._paths), self._version)

    def settle(self, seen: SeenUnsynced) -> None:
        """It was synced."""
        for path, version in seen.paths.items():
            if self._paths.get(path) == version:
                del self._paths[path]
        if seen.directories:
            self._synced = max(self._synced, seen.version)
            if seen.version >= self._own_name and seen.directories[-1] == self._directory.rpartition("/")[0]:
                self._own_name = 0
