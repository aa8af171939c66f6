"""What an export has committed: numbered JSON files in `_manifest/`, one more per run, none ever changed.

Rule 1: a version is made by linking a finished file to a name that must not exist yet: of two writers one fails
        (`Fenced`).
Rule 2: offsets only grow; a version repeats every partition's next offset, and names the files that its own run added.
Rule 3: files are moved from their staging place to their final one after the version that names them exists;
        whoever comes next
        finishes what a crash left undone (`finish_moves`). So a reader of `data/` never sees a row that is not
        committed.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.errors import CorruptData, LogyardError

MANIFESTS, STAGING, DATA = "_manifest", "_staging", "data"
STALE_S = 24 * 3600.0


class Fenced(LogyardError):
    """Another export committed to this directory since this one looked."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far one topic was exported: its id then, and the next offset of each partition."""

    topic_id: str | None
    next_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version; version 0 is that of an empty directory and exists nowhere."""

    version: int = 0
    cluster_id: str | None = None
    run_id: str = ""
    topics: Mapping[str, TopicProgress] = field(default_factory=dict)
    files: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        topics = {
            name: {"topic_id": t.topic_id, "next_offsets": {str(p): o for p, o in sorted(t.next_offsets.items())}}
            for name, t in sorted(self.topics.items())
        }
        return {
            "version": self.version,
            "cluster_id": self.cluster_id,
            "run_id": self.run_id,
            "topics": topics,
            "files": [dict(f) for f in self.files],
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Manifest":
        """Read what `to_json` gave; raises CorruptData."""
        try:
            topics = {
                str(name): TopicProgress(t["topic_id"], {int(p): int(o) for p, o in t["next_offsets"].items()})
                for name, t in row["topics"].items()
            }
            return cls(int(row["version"]), row["cluster_id"], str(row["run_id"]), topics, tuple(row["files"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptData(f"manifest: {error!r}") from error

    def advanced(
        self,
        *,
        cluster_id: str | None,
        run_id: str,
        topics: Mapping[str, TopicProgress],
        files: Sequence[Mapping[str, Any]],
    ) -> "Manifest":
        """Return the next version: offsets merged by maximum within the same topic id, replaced for a new one."""
        merged = dict(self.topics)
        for name, new in topics.items():
            old = merged.get(name)
            if old is None or old.topic_id != new.topic_id:
                merged[name] = new
                continue
            partitions = {**old.next_offsets}
            for partition, offset in new.next_offsets.items():
                partitions[partition] = max(offset, partitions.get(partition, 0))
            merged[name] = TopicProgress(new.topic_id, partitions)
        return Manifest(self.version + 1, cluster_id, run_id, merged, tuple(files))


class ManifestStore:
    """The manifests of one export directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._manifests = os.path.join(directory, MANIFESTS)

    def latest(self) -> Manifest:
        """Return the newest version, version 0 where there is none; raises CorruptData."""
        versions = self._versions()
        return self._read(versions[-1]) if versions else Manifest()

    def all_files(self) -> list[Mapping[str, Any]]:
        """Return every committed file, oldest first."""
        return [f for version in self._versions() for f in self._read(version).files]

    def commit(self, manifest: Manifest) -> None:
        """Make this the newest version; raises Fenced if its number is taken."""
        os.makedirs(self._manifests, exist_ok=True)
        temporary = os.path.join(self._manifests, f".{manifest.run_id}.tmp")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(manifest.to_json(), file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, self._path(manifest.version))
        except FileExistsError:
            raise Fenced(
                f"{self.directory}: another export committed version {manifest.version} meanwhile;"
                " nothing of this run was kept"
            ) from None
        finally:
            os.unlink(temporary)
        sync_directory(self._manifests)

    def finish_moves(self, manifest: Manifest) -> None:
        """Move the files that `manifest` names from staging to their place, those that are still there."""
        directories = set()
        for file in manifest.files:
            staged = os.path.join(self.directory, str(file["staged"]))
            final = os.path.join(self.directory, str(file["path"]))
            if os.path.exists(staged):
                os.makedirs(os.path.dirname(final), exist_ok=True)
                os.replace(staged, final)
                directories.add(os.path.dirname(final))
        for directory in sorted(directories):
            sync_directory(directory)
        if manifest.run_id:
            shutil.rmtree(self.staging(manifest.run_id), ignore_errors=True)

    def staging(self, run_id: str) -> str:
        """Return the directory where a run puts what it has not committed."""
        return os.path.join(self.directory, STAGING, run_id)

    def drop_staging(self, run_id: str) -> None:
        """Remove what a run staged."""
        shutil.rmtree(self.staging(run_id), ignore_errors=True)

    def drop_stale_staging(self) -> None:
        """Remove what runs that died more than a day ago staged."""
        root = os.path.join(self.directory, STAGING)
        for name in os.listdir(root) if os.path.isdir(root) else ():
            path = os.path.join(root, name)
            if time.time() - os.path.getmtime(path) > STALE_S:
                shutil.rmtree(path, ignore_errors=True)

    def _versions(self) -> list[int]:
        if not os.path.isdir(self._manifests):
            return []
        return sorted(int(n.removesuffix(".json")) for n in os.listdir(self._manifests) if n.endswith(".json"))

    def _path(self, version: int) -> str:
        return os.path.join(self._manifests, f"{version:010d}.json")

    def _read(self, version: int) -> Manifest:
        with open(self._path(version), encoding="utf-8") as file:
            try:
                content = json.load(file)
            except ValueError as error:
                raise CorruptData(f"{self._path(version)}: {error}") from error
        return Manifest.from_json(content)


def sync_directory(directory: str) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
