"""The snapshots of a table in an Iceberg catalog, and the files that they name. `catalog.py` alone imports this."""

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.refs import SnapshotRefType

from logyard.spark_jobs.tables.catalog_commits import forgetting, live_manifests
from logyard.spark_jobs.tables.snapshots import Ref, Snapshot

DELETED_AT_ONCE = 16


class History:
    """What one state of a table knows of its earlier ones. Each method asks the table's files."""

    def __init__(self, table: Any) -> None:
        self._table, self._metadata, self._io = table, table.metadata, table.io

    @property
    def snapshots(self) -> list[Snapshot]:
        return [Snapshot(s.snapshot_id, s.parent_snapshot_id, s.timestamp_ms) for s in self._metadata.snapshots]

    @property
    def refs(self) -> list[Ref]:
        return [
            Ref(
                ref.snapshot_id,
                ref.snapshot_ref_type == SnapshotRefType.BRANCH,
                ref.min_snapshots_to_keep,
                ref.max_snapshot_age_ms,
            )
            for ref in self._metadata.refs.values()
        ]

    def files(self) -> frozenset[str] | None:
        """Return the URLs of the present state's data files; None if rows of them were deleted by delete files."""
        there = live_manifests(self._metadata, self._io)
        if any(one.content != ManifestContent.DATA for one in there):
            return None
        return frozenset(self._files_in(there))

    def named(self) -> frozenset[str]:
        """Return the URLs of all data files that any snapshot names."""
        return frozenset(self._files_in(self._manifests(s.snapshot_id for s in self._metadata.snapshots).values()))

    def forget(self, ids: Collection[int]) -> None:
        """Forget snapshots, in one commit on this very state of the branches and tags."""
        requirements, updates = forgetting(self._metadata, ids)
        self._table.catalog.commit_table(self._table, requirements, updates)

    def only_in(self, ids: Collection[int]) -> frozenset[str]:
        """Return the URLs of files (manifest lists, manifests, and what they name) that only these snapshots name."""
        left = [s.snapshot_id for s in self._metadata.snapshots if s.snapshot_id not in ids]
        gone, stays = self._manifests(ids), self._manifests(left)
        alone = {path: one for path, one in gone.items() if path not in stays}
        found = {*alone, *(s.manifest_list for s in self._metadata.snapshots if s.snapshot_id in ids)}
        found |= set(self._files_in(alone.values()))
        return frozenset(found - self._needed(left, stays)) if found else frozenset()

    def unneeded(self, urls: Iterable[str]) -> frozenset[str]:
        """Return those of some URLs that no snapshot of this state names in any way."""
        left = [s.snapshot_id for s in self._metadata.snapshots]
        return frozenset(urls) - self._needed(left, self._manifests(left))

    def delete(self, urls: Iterable[str]) -> dict[str, str]:
        """Delete files, which may be gone; returns why some could not be deleted."""

        def delete(url: str) -> tuple[str, str]:
            try:
                self._io.delete(url)
            except FileNotFoundError:
                pass
            except Exception as error:
                return url, f"{type(error).__name__}: {error}"
            return url, ""

        with ThreadPoolExecutor(DELETED_AT_ONCE) as pool:
            return {url: why for url, why in pool.map(delete, sorted(urls)) if why}

    def _needed(self, ids: Collection[int], manifests: dict[str, Any]) -> set[str]:
        lists = {s.manifest_list for s in self._metadata.snapshots if s.snapshot_id in ids}
        return {*lists, *manifests, *self._files_in(manifests.values())}

    def _manifests(self, ids: Iterable[int]) -> dict[str, Any]:
        """Return the manifests of snapshots, by their paths."""
        wanted = frozenset(ids)
        there = (s for s in self._metadata.snapshots if s.snapshot_id in wanted)
        return {one.manifest_path: one for s in there for one in s.manifests(self._io)}

    def _files_in(self, manifests: Iterable[Any]) -> Iterator[str]:
        for manifest in manifests:
            for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True):
                yield entry.data_file.file_path
