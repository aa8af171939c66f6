"""An export in a directory that driver and executors share.

A version is created by linking a finished file to a name that must not exist. Tasks write to the run's staging
directory; after the commit the files are renamed to their final paths, and the next run finishes what a crash left.
"""

import errno
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.atomic_file import draft_of, sync
from logyard.spark_jobs.export.places.place import NumberTaken, Stored
from logyard.spark_jobs.export.staged_files import check_seen, sync_directory, sync_staged
from logyard.spark_jobs.export.staging import Alive, remove, stale, stale_drafts

STAGING = "_staging"
_TRIMMED = "trimmed"
# Each failure but the first needs another run that replaces the small file at that moment.
_LINK_ATTEMPTS = 20


class Folder:
    """A directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.manifests = ManifestFolder(os.path.join(directory, "_manifest"))
        self.expired = ManifestFolder(os.path.join(directory, "_expired"))

    def check(self) -> None:
        pass

    def files(self, run_id: str) -> "FolderRun":
        return FolderRun(self._directory, self.staging(run_id))

    def staging(self, run_id: str) -> str:
        return os.path.join(self._directory, STAGING, run_id)

    def confirm(self, files: Iterable[Mapping[str, Any]]) -> None:
        files = list(files)
        check_seen(self._directory, files)
        sync_staged(self._directory, files)

    def is_unpublished(self, run_id: str, removed: Iterable[str]) -> bool:
        gone = (os.path.join(self._directory, path) for path in removed)
        return bool(run_id) and (os.path.isdir(self.staging(run_id)) or any(map(os.path.exists, gone)))

    def publish(
        self, files: Iterable[Mapping[str, Any]], removed: Iterable[str], is_newest: Callable[[], bool]
    ) -> None:
        files = list(files)
        directories = {self._directory} if files else set()
        for file in files:
            self.move(file, directories, is_newest)
        for directory in sorted(directories):
            sync_directory(directory)
        for path in removed:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, path))

    def move(self, file: Mapping[str, Any], directories: set[str], is_newest: Callable[[], bool]) -> None:
        """Move one file to its final path; adds the directories whose entries changed to `directories`."""
        path = str(file["path"])
        staged, final = os.path.join(self._directory, str(file["staged"])), os.path.join(self._directory, path)
        if os.path.exists(staged):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            # Another run may move it at the same moment.
            with suppress(FileNotFoundError):
                os.replace(staged, final)
        if not os.path.exists(final):
            if not is_newest():
                raise FileExistsError(final)
            raise CorruptData(final)
        above = os.path.dirname(path)
        while above:
            directories.add(os.path.join(self._directory, above))
            above = os.path.dirname(above)

    def working(self, run_id: str) -> AbstractContextManager[None]:
        return _alive(self.staging(run_id))

    def drop_staging(self, run_id: str) -> None:
        remove(self.staging(run_id))

    def clean(self, newest_run: str, kept: Callable[[], Iterable[str]]) -> int:
        staging = os.path.join(self._directory, STAGING)
        for path in stale(staging, newest_run):
            remove(path)
        for place in (staging, self.manifests.where(""), self.expired.where("")):
            for path in stale_drafts(place):
                with suppress(OSError):  # another run's cleaning was faster, or it is another user's
                    os.unlink(path)
        return 0


@contextmanager
def _alive(staging: str) -> Iterator[None]:
    with Alive(staging):
        yield


@dataclass(frozen=True, slots=True)
class FolderRun:
    """The files of one run: new ones in its staging directory."""

    place: str
    staging: str

    def create(self, path: str) -> "NewFolderFile":
        return NewFolderFile(self.place, path, os.path.join(self.staging, path))

    def open(self, path: str) -> str:
        whole = os.path.join(self.place, path)
        os.stat(whole)
        return whole

    def where(self, path: str) -> str:
        return os.path.join(self.place, path)


class NewFolderFile:
    """A file under a temporary name until it is complete."""

    def __init__(self, directory: str, path: str, staged: str) -> None:
        self._directory, self._path, self._staged = directory, path, staged
        self.target = f"{staged}.{uuid.uuid4().hex}.tmp"
        os.makedirs(os.path.dirname(staged), exist_ok=True)

    def finish(self) -> Stored:
        sync(self.target)
        os.replace(self.target, self._staged)
        return Stored(self._path, os.path.relpath(self._staged, self._directory), os.path.getsize(self._staged))

    def drop(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.target)


class ManifestFolder:
    """The directory `_manifest`, or another with such files."""

    trims = True

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        return os.listdir(self._directory) if os.path.isdir(self._directory) else []

    def where(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def read(self, name: str) -> bytes:
        with open(self.where(name), "rb") as file:
            return file.read()

    def create(self, name: str, row: Mapping[str, Any]) -> None:
        os.makedirs(self._directory, exist_ok=True)
        temporary = self._new_name()
        try:
            _write(temporary, row)
            self._link(temporary, name)
        finally:
            # As below: a file server may have done it, and not have said so.
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_directory(self._directory)

    def _link(self, temporary: str, name: str) -> None:
        """Raises NumberTaken. Where the answer to a client of NFS was lost, it asks again, and finds its own link."""
        try:
            os.link(temporary, self.where(name))
        except FileExistsError:
            if not os.path.samefile(temporary, self.where(name)):
                raise NumberTaken(f"{self.where(name)} exists") from None

    def replace(self, name: str, row: Mapping[str, Any]) -> None:
        with draft_of(self.where(name)) as draft:
            _write(draft, row)

    def trim(self, name: str, note: Mapping[str, Any]) -> None:
        """Replace a version by a link to the small file."""
        temporary = self._linked_aside(note)
        try:
            os.replace(temporary, self.where(name))
        finally:
            # If another run trimmed it first, both names are links to one file, and such a rename does nothing.
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.where(name))

    def sync(self) -> None:
        sync_directory(self._directory)

    def _linked_aside(self, note: Mapping[str, Any]) -> str:
        """Give the small file one more, temporary name; returns its path."""
        temporary = self._new_name()
        for _ in range(_LINK_ATTEMPTS - 1):
            try:
                os.link(self.where(_TRIMMED), temporary)
                return temporary
            except OSError as error:
                # The small file does not exist yet, has as many names as the file system allows, or was replaced by
                # another run between its look-up and the link: link(2) says ENOENT then, although the name exists.
                if error.errno not in (errno.ENOENT, errno.EMLINK):
                    raise
                if error.errno == errno.EMLINK or not os.path.exists(self.where(_TRIMMED)):
                    self.replace(_TRIMMED, note)
        os.link(self.where(_TRIMMED), temporary)
        return temporary

    def _new_name(self) -> str:
        return os.path.join(self._directory, f".{uuid.uuid4().hex}.tmp")


def _write(path: str, row: Mapping[str, Any]) -> None:
    """Write a new file, durably."""
    with open(path, "x", encoding="utf-8") as file:
        json.dump(row, file, indent=1, sort_keys=True)
    sync(path)
