"""Commits to a table of an Iceberg catalog, in PyIceberg's own classes. `catalog.py` alone imports this.

`Change` is one snapshot in which files come and go. The library's own overwrite was not taken: it reads every manifest
twice, and keeps those that name removed files alone for ever, so that each commit reads all earlier ones again.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT

from logyard.spark_jobs.tables.publisher import NotInTable

# Manifests are merged into one of this size as soon as there are so many: what Iceberg's own writers do by default.
MANIFEST_BYTES, MANIFESTS_TOGETHER = 8 * 1024 * 1024, 100


class Once(Transaction):
    """A transaction that is sent once, and deletes nothing when it fails."""

    def commit_transaction(self) -> Any:
        requirements = (*self._requirements, AssertTableUUID(uuid=self.table_metadata.table_uuid))
        self._table.catalog.commit_table(self._table, requirements, self._updates)
        return self._table


class Change(_SnapshotProducer):
    """One snapshot: files that are added, and files that are removed by their paths.

    Raises NotInTable, before anything is sent, if the present state lacks one of these or has rows deleted by delete
    files: whoever rewrote the files did not know of those deletions.
    """

    def __init__(self, commit: Transaction, kind: str, removed: Collection[str], told: Mapping[str, str]) -> None:
        """:param kind: Iceberg's word: `append`, `overwrite`, or `replace` if the table's rows stay the same."""
        self._operation: Any = None  # set by the base
        super().__init__(Operation(kind), commit, commit._table.io, snapshot_properties=dict(told))
        self._removed = frozenset(removed)

    @cached_property
    def _parts(self) -> tuple[list[Any], list[Any]]:
        """The manifests that stay, some written anew, and the entries of removed files."""
        there = live_manifests(self._transaction.table_metadata, self._io)
        if self._removed and any(manifest.content != ManifestContent.DATA for manifest in there):
            raise NotInTable("another program deleted rows of it")
        kept: list[Any] = []
        gone: list[Any] = []
        plans: list[tuple[Any, list[Any]]] = []
        for manifest in there:
            if len(gone) == len(self._removed):
                kept.append(manifest)
                continue
            entries = self.fetch_manifest_entry(manifest)
            stays = [entry for entry in entries if entry.data_file.file_path not in self._removed]
            gone += (entry for entry in entries if entry.data_file.file_path in self._removed)
            if len(stays) == len(entries):
                kept.append(manifest)
            elif stays:
                plans.append((manifest, stays))
        lacking = self._removed - {entry.data_file.file_path for entry in gone}
        if lacking:
            raise NotInTable(f"another program removed {min(lacking)} from it")
        kept += [self._without(manifest, entries) for manifest, entries in plans]
        self._deleted_data_files = {entry.data_file for entry in gone}
        return kept, [_again(entry, ManifestEntryStatus.DELETED, self._snapshot_id) for entry in gone]

    def _without(self, manifest: Any, entries: list[Any]) -> Any:
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in entries:
                writer.add_entry(_again(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id))
        return writer.to_manifest_file()

    def _existing_manifests(self) -> list[Any]:
        return self._parts[0]

    def _deleted_entries(self) -> list[Any]:
        return self._parts[1]

    def _process_manifests(self, manifests: list[Any]) -> list[Any]:
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        deletes = [manifest for manifest in manifests if manifest.content != ManifestContent.DATA]
        merging = _ManifestMergeManager(MANIFEST_BYTES, MANIFESTS_TOGETHER, True, self)
        return [*merging.merge_manifests(data), *deletes]

    def _summary(self, snapshot_properties: Mapping[str, str] = EMPTY_DICT) -> Any:
        wanted = self._operation
        # The library counts files of an overwrite only, although a rewriting has the same counts.
        self._operation = Operation.OVERWRITE if wanted is Operation.REPLACE else wanted
        summary = super()._summary(dict(snapshot_properties))
        self._operation = wanted
        return Summary(operation=wanted, **summary.additional_properties)


def live_manifests(metadata: Any, io: Any, snapshot: Any = None) -> list[Any]:
    """Return the manifests of a snapshot (the present one) that name files."""
    snapshot = snapshot or metadata.current_snapshot()
    there = [] if snapshot is None else snapshot.manifests(io)
    return [one for one in there if one.has_added_files() or one.has_existing_files()]


def forgetting(metadata: Any, ids: Collection[int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the requirements and the update that forget snapshots: no branch or tag may have moved meanwhile."""
    refs = tuple(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items())
    return (*refs, AssertTableUUID(uuid=metadata.table_uuid)), (RemoveSnapshotsUpdate(snapshot_ids=sorted(ids)),)


def _again(entry: Any, status: Any, snapshot_id: int) -> Any:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
