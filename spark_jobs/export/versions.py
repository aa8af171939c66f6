"""The versions of one export on disk, a file each (`_manifest/0000000042.json`), and checkpoints, so that a reader need
not read all of them.

Rule 1: a version is created by linking a finished file to a name that must not exist yet: if two writers try, one
fails.
Rule 2: every CHECKPOINT_EVERY versions, a checkpoint beside them lists the live files after that version. It depends
only on the versions, so every writer writes the same one. Releases of Logyard that do not know checkpoints ignore them.
Rule 3: of versions older than the newest KEPT only the name stays, linked to one small file: a writer that was stopped
for a year must not find its version number free. A release that does not know checkpoints and reads all versions fails
at such a file, so it cannot mistake some of the files for all.
"""

import errno
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from logyard.broker.errors import CorruptData, LogyardError
from logyard.spark_jobs.export.staged_files import sync_directory

CHECKPOINT_EVERY = 50
# This many newest versions stay readable one by one; the last checkpoint but one covers the older ones.
KEPT = 1000
# Versions trimmed in one go at most: the first time there may be a hundred thousand.
TRIMMED_AT_ONCE = 500
READ_ATTEMPTS = 5
_CHECKPOINT, _TRIMMED = "checkpoint-", "trimmed"
_NOTE = "its files are in the checkpoints beside it; read them with logyard.spark_jobs.manifest.ManifestStore"


class NumberTaken(LogyardError):
    """The version's name exists."""


class Trimmed(LogyardError):
    """Only the name of this version is left."""


class Versions:
    """The `_manifest` directory. Versions are plain JSON objects here."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._live: dict[str, Mapping[str, Any]] = {}
        self.live_at = 0

    def newest(self) -> Mapping[str, Any] | None:
        """Return the newest version, None if there is none; raises CorruptData."""
        versions = self._numbers()
        return self.read(versions[-1]) if versions else None

    def read(self, version: int) -> Mapping[str, Any]:
        """Return one version; raises Trimmed, CorruptData, FileNotFoundError."""
        row = load(self._path(version))
        if row.get("trimmed"):
            raise Trimmed(f"{self._path(version)}: it was trimmed: {_NOTE}")
        return row

    def append(self, version: int, row: Mapping[str, Any]) -> None:
        """Create a version; raises NumberTaken."""
        os.makedirs(self._directory, exist_ok=True)
        temporary = self._aside(row)
        try:
            os.link(temporary, self._path(version))
        except FileExistsError:
            raise NumberTaken(f"{self._path(version)} exists") from None
        finally:
            os.unlink(temporary)
        sync_directory(self._directory)

    def live_files(self) -> list[Mapping[str, Any]]:
        """Return every file of a version that no later version removed, oldest first; raises CorruptData."""
        for attempt in range(READ_ATTEMPTS):
            try:
                return self._read_live()
            except (Trimmed, FileNotFoundError) as error:
                # Since the directory was listed, another run has written a checkpoint and trimmed versions.
                if attempt == READ_ATTEMPTS - 1:
                    raise CorruptData(f"{error}; and no checkpoint covers it") from error
        raise AssertionError

    def checkpoint(self) -> None:
        """Write a checkpoint and trim old versions, if that is due; raises CorruptData, OSError."""
        numbers, points = self._numbers(), self._numbers(_CHECKPOINT)
        newest = numbers[-1] if numbers else 0
        if newest - (points[-1] if points else 0) < CHECKPOINT_EVERY:
            return
        files = self.live_files()
        # The versions must be durable before a checkpoint that covers them.
        sync_directory(self._directory)
        trimmed = self._trim(numbers, points)
        self._replace(self._path(self.live_at, _CHECKPOINT), {"files": files, "trimmed": trimmed})
        for point in points[:-1]:
            with suppress(FileNotFoundError):
                os.unlink(self._path(point, _CHECKPOINT))
        sync_directory(self._directory)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_live(self) -> list[Mapping[str, Any]]:
        numbers = self._numbers()
        newest = numbers[-1] if numbers else 0
        at, live = self.live_at, dict(self._live)
        if newest - at > CHECKPOINT_EVERY:
            point, files = self._checkpoint(newest)
            if point > at:
                at, live = point, {str(file["path"]): file for file in files}
        for number in numbers:
            if number > at:
                row = self.read(number)
                for path in row.get("removed", ()):
                    live.pop(str(path), None)
                live.update((str(file["path"]), file) for file in row["files"])
        self.live_at, self._live = newest, live
        return list(live.values())

    def _checkpoint(self, newest: int) -> tuple[int, list[Mapping[str, Any]]]:
        """Return the version and files of the last valid checkpoint, 0 and none if there is none."""
        for point in reversed(self._numbers(_CHECKPOINT)):
            if point <= newest:
                with suppress(CorruptData, KeyError):
                    return point, list(load(self._path(point, _CHECKPOINT))["files"])
        return 0, []

    def _numbers(self, prefix: str = "") -> list[int]:
        if not os.path.isdir(self._directory):
            return []
        stems = (n.removeprefix(prefix).removesuffix(".json") for n in _named(self._directory, prefix))
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def _path(self, number: int, prefix: str = "") -> str:
        return os.path.join(self._directory, f"{prefix}{number:010d}.json")

    # --- writing -----------------------------------------------------------------------------------------------------

    def _trim(self, numbers: Iterable[int], points: list[int]) -> int:
        """Trim versions that are old enough and covered by the last checkpoint; returns the last trimmed version."""
        if not points:
            return 0
        try:
            begin = int(load(self._path(points[-1], _CHECKPOINT))["trimmed"])
        except (CorruptData, KeyError, FileNotFoundError):
            return 0
        end = min(self.live_at - KEPT, points[-1])
        due = [number for number in numbers if begin < number <= end][:TRIMMED_AT_ONCE]
        for number in due:
            self._link_trimmed(self._path(number))
        return due[-1] if due else begin

    def _link_trimmed(self, path: str) -> None:
        """Replace a version by a link to the small file."""
        note = os.path.join(self._directory, _TRIMMED)
        temporary = os.path.join(self._directory, f".{uuid.uuid4().hex}.tmp")
        try:
            os.link(note, temporary)
        except OSError as error:
            # The small file does not exist yet, or has as many names as the file system allows.
            if error.errno not in (errno.ENOENT, errno.EMLINK):
                raise
            self._replace(note, {"trimmed": True, "note": _NOTE})
            os.link(note, temporary)
        try:
            os.replace(temporary, path)
        finally:
            # If another run trimmed it first, both names are links to one file, and such a rename does nothing.
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def _replace(self, path: str, row: Mapping[str, Any]) -> None:
        os.replace(self._aside(row), path)

    def _aside(self, row: Mapping[str, Any]) -> str:
        """Write a file under a temporary name; returns its path."""
        temporary = os.path.join(self._directory, f".{uuid.uuid4().hex}.tmp")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(row, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        return temporary


def _named(directory: str, prefix: str) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(prefix) and name.endswith(".json")]


def load(path: str) -> Mapping[str, Any]:
    """Raises CorruptData, FileNotFoundError."""
    with open(path, encoding="utf-8") as file:
        try:
            row = json.load(file)
        except ValueError as error:
            raise CorruptData(f"{path}: {error}") from error
    if not isinstance(row, dict):
        raise CorruptData(f"{path}: a JSON object is expected")
    return row
