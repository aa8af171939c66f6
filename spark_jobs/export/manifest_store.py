"""The committed state of an export: numbered, immutable versions in `_manifest/` (versions.py), in a directory or an
object store (places/).

Rule 1: a version is created under a name that must not exist yet: if two writers try, one fails (`Fenced`).
Rule 2: a version names only files that the driver itself has checked: executors may write to a disk that the driver
does not see.
Rule 3: in a directory, files are moved from staging to their final paths after the version that names them exists; the
next run finishes what a crash left undone (`finish_moves`). So a reader of `data/` never sees an uncommitted row.
Removed files are deleted last: a reader that must not see such rows twice for a moment reads the files of `live_files`.
In an object store only `live_files` tells which objects belong to the table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from logyard.broker.errors import CorruptData, LogyardError
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.places.bucket import Bucket
from logyard.spark_jobs.export.places.folder import Folder
from logyard.spark_jobs.export.places.place import NumberTaken, Place, RunFiles
from logyard.spark_jobs.export.versions import Versions
from logyard.spark_jobs.objects.store import ObjectStore
from logyard.spark_jobs.objects.urls import is_object_store


class Fenced(LogyardError):
    """Another export committed to this destination since this one looked."""


class ManifestStore:
    """The manifests of one export."""

    def __init__(self, directory: str, settings: Mapping[str, str] | None = None) -> None:
        """:param directory: a directory's path or an object store's URL.
        :param settings: of the object store (`objects/store.py`), credentials among them; what they do not say, the
            environment does.
        """
        self.directory = directory
        self.is_folder = not is_object_store(directory)
        self.objects = None if self.is_folder else ObjectStore(directory, settings or {})
        self._place: Place = Folder(directory) if self.objects is None else Bucket(self.objects)
        self._versions = Versions(self._place.manifests)
        self.expired = self._place.expired

    def check(self) -> None:
        """Check that the destination can hold an export; raises BrokenPromise, StoreFailed."""
        self._place.check()

    def latest(self) -> Manifest:
        """Return the newest version, version 0 if there is none; raises CorruptData, StoreFailed."""
        row = self._versions.newest()
        return Manifest() if row is None else Manifest.from_json(row)

    def live_files(self) -> list[Mapping[str, Any]]:
        """Return every committed file that no later version removed, oldest first; raises CorruptData, StoreFailed."""
        return self._versions.live_files()

    def commit(self, manifest: Manifest) -> None:
        """Make this the newest version; raises Fenced if its number is taken, NotShared if the driver does not see a
        file that it names, Undecided if an object store does not tell."""
        self._place.confirm(manifest.files)
        try:
            self._versions.append(manifest.version, manifest.to_json())
        except NumberTaken:
            raise Fenced(
                f"{self.directory}: another export committed version {manifest.version} meanwhile;"
                " of this run only what it committed before was kept"
            ) from None

    def checkpoint(self) -> None:
        """Write a checkpoint and trim old versions, if that is due; raises CorruptData, OSError, StoreFailed."""
        self._versions.checkpoint()

    def finish_moves(
        self, manifest: Manifest, *, without: str = "", keep_staging: bool = False, keep_removed: str = ""
    ) -> None:
        """Move the files that `manifest` names and that are still staged to their final paths, then delete those that
        it removes. Does nothing in an object store.

        :param without: a table whose files are not moved.
        :param keep_removed: a table whose removed files stay.

        Raises CorruptData if a file is at neither path, Fenced if another export has continued meanwhile.
        """
        added = {str(file["path"]) for file in manifest.files}
        files = [file for file in manifest.files if not without or file.get("table") != without]
        removed = [path for path in manifest.removed if path not in added and not _is_of(path, keep_removed)]
        try:
            self._place.publish(files, removed, lambda: self.latest().version <= manifest.version)
        except FileExistsError:
            raise Fenced(
                f"{self.directory}: another export has continued from version {manifest.version} meanwhile"
            ) from None
        except CorruptData as error:
            raise CorruptData(
                f"{error} was committed by version {manifest.version}, and is neither staged nor at its final path:"
                " the offsets of that version count as exported, and its rows are gone"
            ) from None
        if manifest.run_id and not keep_staging:
            self.drop_staging(manifest.run_id)

    def is_unpublished(self, manifest: Manifest) -> bool:
        """Whether moves or deletions of this version are left to do: its staging directory is deleted last."""
        return self._place.is_unpublished(manifest.run_id, manifest.removed)

    def files(self, run_id: str) -> RunFiles:
        """Return where a run's tasks write and read."""
        return self._place.files(run_id)

    def open(self, path: str) -> Any:
        """Return what a Parquet reader takes, for the `path` of a live file; raises FileNotFoundError, StoreFailed."""
        return self._place.files("").open(path)

    def staging(self, run_id: str) -> str:
        """Return the directory (or URL) of a run's uncommitted files."""
        return self._place.staging(run_id)

    def confirm(self, files: list[dict[str, Any]]) -> None:
        """Check that the driver sees these staged files; raises NotShared."""
        self._place.confirm(files)

    def drop_staging(self, run_id: str) -> None:
        """Remove what a run staged."""
        self._place.drop_staging(run_id)

    def drop_uncommitted(self, run_id: str) -> None:
        """Delete a run's staged files, unless the newest version names them."""
        if self.latest().run_id != run_id:
            self.drop_staging(run_id)

    @contextmanager
    def working(self, run_id: str) -> Iterator[None]:
        """Keep a run's staging directory marked as alive; uncommitted files are deleted at the end."""
        with self._place.working(run_id):
            try:
                yield
            finally:
                if self.is_folder:
                    self.drop_uncommitted(run_id)

    def drop_stale_staging(self, kept: Callable[[], Iterable[str]] = tuple) -> int:
        """Delete what dead runs wrote and no version names; returns how many objects of a store were deleted.

        :param kept: returns paths of files that stay although no version names them.
        """
        return self._place.clean(
            self.latest().run_id, lambda: [*(str(file["path"]) for file in self.live_files()), *kept()]
        )


def _is_of(path: str, table: str) -> bool:
    return bool(table) and path.startswith(f"{table}/")
