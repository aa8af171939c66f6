"""What an export needs of the place where it lives: a directory (`folder.py`) or an object store (`bucket.py`).

Rule 1: of two writers of one version exactly one succeeds (`ManifestFiles.create`).
Rule 2: nothing that a task writes can be seen as part of the table before a version names it.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from logyard.broker.errors import LogyardError


class NumberTaken(LogyardError):
    """The version's name exists."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A finished file: its final path, and where it is now; both are relative to the export."""

    path: str
    staged: str
    bytes: int


class NewFile(Protocol):
    """A file that one task writes. Nobody sees it before `finish`."""

    @property
    def target(self) -> Any:
        """What a Parquet writer takes: a path or an open file."""
        ...

    def finish(self) -> Stored:
        """Make the written file durable under a name of its own, once the writer is closed."""
        ...

    def drop(self) -> None:
        """Remove what was written."""
        ...


class RunFiles(Protocol):
    """The files of one run, for its tasks; it goes to executors."""

    @property
    def place(self) -> str:
        """The export's path or URL."""
        ...

    def create(self, path: str) -> NewFile:
        """Begin a file that will have this path, or one that differs in its name alone."""
        ...

    def open(self, path: str) -> Any:
        """Return what a Parquet reader takes, for a path relative to the export; raises FileNotFoundError."""
        ...

    def where(self, path: str) -> str:
        """Return a path as error messages name it."""
        ...


class ManifestFiles(Protocol):
    """The files of `_manifest`, by name. Rows are JSON objects."""

    @property
    def trims(self) -> bool:
        """Whether old versions are replaced by a short note to save space."""
        ...

    def names(self) -> list[str]: ...

    def where(self, name: str) -> str:
        """Return a file's path or URL."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def create(self, name: str, row: Mapping[str, Any]) -> None:
        """Write a file, durably; raises NumberTaken if the name exists."""
        ...

    def replace(self, name: str, row: Mapping[str, Any]) -> None:
        """Write a file, whatever is there; every writer writes the same."""
        ...

    def trim(self, name: str, note: Mapping[str, Any]) -> None:
        """Replace a version's content by a note; its name stays taken at every moment."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file, which may be gone."""
        ...

    def sync(self) -> None:
        """Make earlier changes durable."""
        ...


class Place(Protocol):
    """One export's place."""

    @property
    def manifests(self) -> ManifestFiles: ...

    @property
    def expired(self) -> ManifestFiles:
        """Return the notes of files that are about to be deleted (`maintenance/notes.py`)."""
        ...

    def check(self) -> None:
        """Check, before a run begins, that the place keeps rule 1; raises StoreFailed."""
        ...

    def files(self, run_id: str) -> RunFiles:
        """Return where a run's tasks write and read."""
        ...

    def staging(self, run_id: str) -> str:
        """Return the path or URL under which a run keeps what no version names yet."""
        ...

    def confirm(self, files: Iterable[Mapping[str, Any]]) -> None:
        """Check that the driver sees the files that a version is to name, and make them durable; raises NotShared."""
        ...

    def is_unpublished(self, run_id: str, removed: Iterable[str]) -> bool:
        """Whether `publish` has work left for this version."""
        ...

    def publish(
        self, files: Iterable[Mapping[str, Any]], removed: Iterable[str], is_newest: Callable[[], bool]
    ) -> None:
        """Put a committed version's files at their final paths and delete those it removes.

        Raises CorruptData if a file is at neither path, FileExistsError if the version is no longer the newest one.
        """
        ...

    def working(self, run_id: str) -> AbstractContextManager[None]:
        """Keep a run's staged files marked as those of a living run."""
        ...

    def drop_staging(self, run_id: str) -> None:
        """Delete what a run staged and does not need any more."""
        ...

    def clean(self, newest_run: str, kept: Callable[[], Iterable[str]]) -> int:
        """Delete what dead runs left; returns how many objects were deleted, where they are counted.

        :param newest_run: the run that wrote the newest version.
        :param kept: returns the paths of all files that versions name.
        """
        ...
