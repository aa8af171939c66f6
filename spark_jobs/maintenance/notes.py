"""Which files an expiry is about to delete, noted in the export's place before the table forgets their snapshots.

Who dies after that leaves files that nothing names any more: the next run finds them in the note. A note goes when none
of its files is left to delete.
"""

import json
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.export.places.place import ManifestFiles

_URLS = "urls"


class Notes:
    """The notes of all runs."""

    def __init__(self, files: ManifestFiles) -> None:
        self._files = files

    def add(self, urls: Collection[str]) -> None:
        """Write a note, durably; raises OSError, StoreFailed."""
        self._files.create(f"{uuid.uuid4().hex}.json", {_URLS: sorted(urls)})

    def all(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield each note's name and URLs; raises CorruptData, OSError, StoreFailed."""
        for name in sorted(name for name in self._files.names() if name.endswith(".json")):
            # Another run may have done with it.
            with suppress(FileNotFoundError):
                yield name, self._read(name)

    def drop(self, name: str) -> None:
        """Remove a note that may be gone."""
        self._files.remove(name)

    def _read(self, name: str) -> frozenset[str]:
        try:
            return frozenset(map(str, json.loads(self._files.read(name))[_URLS]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(f"{self._files.where(name)}: {error!r}") from error
