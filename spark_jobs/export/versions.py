"""The versions of one export, a file each (`_manifest/0000000042.json`), and checkpoints, so that a reader need not
read all of them.

Rule 1: a version is created under a name that must not exist yet: if two writers try, one fails.
Rule 2: every CHECKPOINT_EVERY versions, a checkpoint beside them lists the live files after that version. It depends
only on the versions, so every writer writes the same one. Releases of Logyard that do not know checkpoints ignore them.
Rule 3: in a directory, of versions older than the newest KEPT only the name stays, linked to one small file: a writer
that was stopped for a year must not find its version number free. A release that does not know checkpoints and reads
all versions fails at such a file, so it cannot mistake some of the files for all.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from logyard.broker.errors import CorruptData, LogyardError
from logyard.spark_jobs.export.places.place import ManifestFiles

CHECKPOINT_EVERY = 50
# This many newest versions stay readable one by one; the last checkpoint but one covers the older ones.
KEPT = 1000
# Versions trimmed in one go at most: the first time there may be a hundred thousand.
TRIMMED_AT_ONCE = 500
READ_ATTEMPTS = 5
_CHECKPOINT = "checkpoint-"
_NOTE = "its files are in the checkpoints beside it; read them with logyard.spark_jobs.manifest.ManifestStore"


class Trimmed(LogyardError):
    """Only the name of this version is left."""


class Versions:
    """The `_manifest` directory. Versions are plain JSON objects here."""

    def __init__(self, files: ManifestFiles) -> None:
        self._files = files
        self._live: dict[str, Mapping[str, Any]] = {}
        self.live_at = 0

    def newest(self) -> Mapping[str, Any] | None:
        """Return the newest version, None if there is none; raises CorruptData."""
        versions = self._numbers()
        return self.read(versions[-1]) if versions else None

    def read(self, version: int) -> Mapping[str, Any]:
        """Return one version; raises Trimmed, CorruptData, FileNotFoundError."""
        row = self._load(_name(version))
        if row.get("trimmed"):
            raise Trimmed(f"{self._files.where(_name(version))}: it was trimmed: {_NOTE}")
        return row

    def append(self, version: int, row: Mapping[str, Any]) -> None:
        """Create a version; raises NumberTaken, StoreFailed."""
        self._files.create(_name(version), row)

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
        self._files.sync()
        trimmed = self._trim(numbers, points)
        self._files.replace(_name(self.live_at, _CHECKPOINT), {"files": files, "trimmed": trimmed})
        for point in points[:-1]:
            self._files.remove(_name(point, _CHECKPOINT))
        self._files.sync()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_live(self) -> list[Mapping[str, Any]]:
        numbers = self._numbers()
        newest = numbers[-1] if numbers else 0
        at, live = self.live_at, dict(self._live)
        if newest - at > CHECKPOINT_EVERY:
            point, files = self._checkpoint(newest)
            if point > at:
                at, live = point, {str(file["path"]): file for file in files}
        # Every one of them, listed or not: of two names an object store may list the later one alone for a while.
        for number in range(at + 1, newest + 1):
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
                    return point, list(self._load(_name(point, _CHECKPOINT))["files"])
        return 0, []

    def _numbers(self, prefix: str = "") -> list[int]:
        names = (n for n in self._files.names() if n.startswith(prefix) and n.endswith(".json"))
        stems = (n.removeprefix(prefix).removesuffix(".json") for n in names)
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def _load(self, name: str) -> Mapping[str, Any]:
        """Raises CorruptData, FileNotFoundError."""
        try:
            row = json.loads(self._files.read(name))
        except ValueError as error:
            raise CorruptData(f"{self._files.where(name)}: {error}") from error
        if not isinstance(row, dict):
            raise CorruptData(f"{self._files.where(name)}: a JSON object is expected")
        return row

    # --- writing -----------------------------------------------------------------------------------------------------

    def _trim(self, numbers: Iterable[int], points: list[int]) -> int:
        """Trim versions that are old enough and covered by the last checkpoint; returns the last trimmed version."""
        if not points or not self._files.trims:
            return 0
        try:
            begin = int(self._load(_name(points[-1], _CHECKPOINT))["trimmed"])
        except (CorruptData, KeyError, FileNotFoundError):
            return 0
        end = min(self.live_at - KEPT, points[-1])
        due = [number for number in numbers if begin < number <= end][:TRIMMED_AT_ONCE]
        for number in due:
            self._files.trim(_name(number), {"trimmed": True, "note": _NOTE})
        return due[-1] if due else begin


def _name(number: int, prefix: str = "") -> str:
    return f"{prefix}{number:010d}.json"
