"""The committed state of an export: numbered, immutable versions in `_manifest/` (versions.py).

Rule 1: a version is created by linking a finished file to a name that must not exist yet: if two writers try, one fails
(`Fenced`).
Rule 2: offsets only grow. A version repeats every partition's next offset, and names the files that it added and the
earlier files that it removed (merged into larger ones, or replaced by newer rows).
Rule 3: files are moved from staging to their final paths after the version that names them exists; the next run
finishes what a crash left undone (`finish_moves`). So a reader of `data/` never sees an uncommitted row. Removed files
are deleted last: a reader that must not see such rows twice for a moment reads the files of `live_files`.
Rule 4: a version names only files that the driver itself has checked (staged_files.py): executors may write to a disk
that the driver does not see.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.errors import CorruptData, LogyardError
from logyard.spark_jobs.export.staged_files import check_seen, sync_directory, sync_staged
from logyard.spark_jobs.export.staging import Alive, remove, stale
from logyard.spark_jobs.export.versions import NumberTaken, Versions

MANIFESTS, STAGING, DATA, DEAD_LETTERS = "_manifest", "_staging", "data", "dead_letters"


class Fenced(LogyardError):
    """Another export committed to this directory since this one looked."""


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """How far one topic was exported: its id, the next offset of each partition, the table's schema (DDL), and, if
    known, the leader epoch of each partition's last exported record."""

    topic_id: str | None
    next_offsets: Mapping[int, int]
    schema: str = ""
    epochs: Mapping[int, int] = field(default_factory=dict)

    def after(self, old: "TopicOffsets") -> "TopicOffsets":
        """Return both merged, for the same topic id: the larger offset of each partition, with its epoch."""
        offsets, epochs = dict(old.next_offsets), dict(old.epochs)
        for partition, offset in self.next_offsets.items():
            if offset > offsets.get(partition, -1):
                offsets[partition] = offset
                epochs.pop(partition, None)
                if partition in self.epochs:
                    epochs[partition] = self.epochs[partition]
        return TopicOffsets(self.topic_id, offsets, self.schema or old.schema, epochs)

    def to_json(self) -> dict[str, Any]:
        return {
            "topic_id": self.topic_id,
            "next_offsets": {str(p): o for p, o in sorted(self.next_offsets.items())},
            "schema": self.schema,
            "epochs": {str(p): e for p, e in sorted(self.epochs.items())},
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "TopicOffsets":
        offsets = {int(partition): int(offset) for partition, offset in row["next_offsets"].items()}
        epochs = {int(partition): int(epoch) for partition, epoch in row.get("epochs", {}).items()}
        return cls(row["topic_id"], offsets, str(row.get("schema", "")), epochs)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version; version 0 stands for an empty directory and is never written.

    `layout`: what all runs must agree on (format, partition columns, mode). `removed`: paths of earlier versions' files
    that this version removes.
    """

    version: int = 0
    cluster_id: str | None = None
    run_id: str = ""
    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    files: tuple[Mapping[str, Any], ...] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "cluster_id": self.cluster_id,
            "run_id": self.run_id,
            "topics": {name: topic.to_json() for name, topic in sorted(self.topics.items())},
            "files": [dict(f) for f in self.files],
            "layout": dict(self.layout),
            "removed": list(self.removed),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Manifest":
        """Parse what `to_json` returned; raises CorruptData."""
        try:
            topics = {str(name): TopicOffsets.from_json(topic) for name, topic in row["topics"].items()}
            kept = dict(row.get("layout", {})), tuple(map(str, row.get("removed", ())))
            return cls(int(row["version"]), row["cluster_id"], str(row["run_id"]), topics, tuple(row["files"]), *kept)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptData(f"manifest: {error!r}") from error

    def advanced(
        self,
        *,
        run_id: str,
        cluster_id: str | None = None,
        topics: Mapping[str, TopicOffsets] | None = None,
        files: Sequence[Mapping[str, Any]] = (),
        layout: Mapping[str, Any] | None = None,
        removed: Iterable[str] = (),
    ) -> "Manifest":
        """Return the next version: offsets merged by maximum within the same topic id, replaced for a new one."""
        merged = dict(self.topics)
        for name, new in (topics or {}).items():
            old = merged.get(name)
            merged[name] = new if old is None or old.topic_id != new.topic_id else new.after(old)
        cluster_id = self.cluster_id if cluster_id is None else cluster_id
        layout = self.layout if layout is None else layout
        return Manifest(self.version + 1, cluster_id, run_id, merged, tuple(files), layout, tuple(removed))


class ManifestStore:
    """The manifests of one export directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._versions = Versions(os.path.join(directory, MANIFESTS))

    def latest(self) -> Manifest:
        """Return the newest version, version 0 if there is none; raises CorruptData."""
        row = self._versions.newest()
        return Manifest() if row is None else Manifest.from_json(row)

    def live_files(self) -> list[Mapping[str, Any]]:
        """Return every committed file that no later version removed, oldest first; raises CorruptData."""
        return self._versions.live_files()

    def commit(self, manifest: Manifest) -> None:
        """Make this the newest version; raises Fenced if its number is taken, NotShared if the driver does not see a
        file that it names."""
        check_seen(self.directory, manifest.files)
        sync_staged(self.directory, manifest.files)
        try:
            self._versions.append(manifest.version, manifest.to_json())
        except NumberTaken:
            raise Fenced(
                f"{self.directory}: another export committed version {manifest.version} meanwhile;"
                " of this run only what it committed before was kept"
            ) from None

    def checkpoint(self) -> None:
        """Write a checkpoint and trim old versions, if that is due; raises CorruptData, OSError."""
        self._versions.checkpoint()

    def finish_moves(self, manifest: Manifest, *, without: str = "", keep_staging: bool = False) -> None:
        """Move the files that `manifest` names and that are still staged to their final paths, then delete those that
        it removes.

        :param without: a table whose files are not moved.

        Raises CorruptData if a file is at neither path, Fenced if another export has continued meanwhile.
        """
        directories = {self.directory} if manifest.files else set()
        added = {str(file["path"]) for file in manifest.files}
        for file in manifest.files:
            if without and file.get("table") == without:
                continue
            self.move_files(manifest, file, directories)
        for directory in sorted(directories):
            sync_directory(directory)
        for path in manifest.removed:
            if path not in added:
                _unlink(os.path.join(self.directory, path))
        if manifest.run_id and not keep_staging:
            self.drop_staging(manifest.run_id)

    def move_files(self, manifest: Manifest, file: Mapping[str, Any], directories: set[str]) -> None:
        """Move one file to its final path; adds the directories whose entries changed to `directories`."""
        path = str(file["path"])
        staged, final = os.path.join(self.directory, str(file["staged"])), os.path.join(self.directory, path)
        if os.path.exists(staged):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            # Another run may move it at the same moment.
            with suppress(FileNotFoundError):
                os.replace(staged, final)
        if not os.path.exists(final):
            if self.latest().version > manifest.version:
                raise Fenced(
                    f"{self.directory}: another export has continued from version {manifest.version} meanwhile"
                )
            raise CorruptData(
                f"{final} was committed by version {manifest.version}, and is neither staged nor at its final path:"
                " the offsets of that version count as exported, and its rows are gone"
            )
        above = os.path.dirname(path)
        while above:
            directories.add(os.path.join(self.directory, above))
            above = os.path.dirname(above)

    def is_unpublished(self, manifest: Manifest) -> bool:
        """Whether moves or deletions of this version are left to do: its staging directory is deleted last."""
        gone = (os.path.join(self.directory, path) for path in manifest.removed)
        return bool(manifest.run_id) and (
            os.path.isdir(self.staging(manifest.run_id)) or any(map(os.path.exists, gone))
        )

    def staging(self, run_id: str) -> str:
        """Return the directory of a run's uncommitted files."""
        return os.path.join(self.directory, STAGING, run_id)

    def drop_staging(self, run_id: str) -> None:
        """Remove what a run staged."""
        remove(self.staging(run_id))

    def drop_uncommitted(self, run_id: str) -> None:
        """Delete a run's staged files, unless the newest version names them."""
        if self.latest().run_id != run_id:
            self.drop_staging(run_id)

    @contextmanager
    def working(self, run_id: str) -> Iterator[None]:
        """Keep a run's staging directory marked as alive; uncommitted files are deleted at the end."""
        with Alive(self.staging(run_id)):
            try:
                yield
            finally:
                self.drop_uncommitted(run_id)

    def drop_stale_staging(self) -> None:
        """Delete what dead runs staged and did not commit."""
        for path in stale(os.path.join(self.directory, STAGING), self.latest().run_id):
            remove(path)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
