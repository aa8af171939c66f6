"""Expiry: the table forgets old snapshots, and the files go that nothing names any more.

Rule 1: a file is deleted only if it was named by a snapshot that the table forgot, no snapshot of the table as it is
        now names it, the manifests of the export do not have it live, and it lies in the table's or the export's place.
Rule 2: the files are noted before the snapshots are forgotten (`notes.py`).
Rule 3: a commit is sent once; after any error the table is read again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from logyard.spark_jobs.export.manifest import DATA
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.maintenance.notes import Notes
from logyard.spark_jobs.objects.deciding import PAUSES_S
from logyard.spark_jobs.tables.catalog import CatalogFailed, CatalogTable
from logyard.spark_jobs.tables.catalog_table import CatalogPublisher, url_of
from logyard.spark_jobs.tables.snapshots import expired

AGE, KEEP, COLLECTS = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep", "gc.enabled"
# Iceberg's own: five days.
AGE_MS = 5 * 24 * 3600 * 1000
DELETED_AT_ONCE = 1000


@dataclass
class Expiry:
    """One run's expiry, and what it did. `age_ms` and `keep`: None for the table's own settings, or Iceberg's."""

    publisher: CatalogPublisher
    store: ManifestStore
    age_ms: int | None
    keep: int | None
    sleep: Callable[[float], None] = time.sleep
    forgotten: int = 0
    left: int = 0
    deleted: int = 0
    not_deleted: dict[str, str] = field(default_factory=dict)
    refused: str = ""

    def all(self) -> None:
        """Expire and delete; raises TableFailed, CatalogFailed, CorruptData, StoreFailed."""
        table = self.publisher.caught_up(self.store)[0]
        if table.properties.get(COLLECTS, "true").lower() == "false":
            self.refused = f"the table's {COLLECTS} is false"
            self.left = len(table.history(lambda history: history.snapshots))
            return
        self._forget()
        self._delete()

    def _forget(self) -> None:
        planned: set[int] = set()
        noted: set[str] = set()
        error: CatalogFailed | None = None
        for pause in (*PAUSES_S, 0.0):
            table = self.publisher.caught_up(self.store)[0]
            ids = self._due(table)
            there = {one.id for one in table.history(lambda history: history.snapshots)}
            self.forgotten, self.left = len(planned - there), len(there)
            if not ids:
                return
            planned |= set(ids)
            if urls := _only_in(table, ids) - noted:
                Notes(self.store.expired).add(urls)
                noted |= urls
            try:
                _forget(table, ids)
            except CatalogFailed as failed:
                error = failed
                self.sleep(pause)
        raise CatalogFailed(f"{len(planned):,} snapshots of the table are not forgotten: {error}")

    def _due(self, table: CatalogTable) -> tuple[int, ...]:
        age = self.age_ms if self.age_ms is not None else _number(table.properties, AGE, AGE_MS)
        keep = self.keep if self.keep is not None else _number(table.properties, KEEP, 1)
        now = time.time_ns() // 1_000_000
        return table.history(lambda history: expired(history.snapshots, history.refs, now, age, keep))

    def _delete(self) -> None:
        notes = Notes(self.store.expired)
        for name, urls in notes.all():
            # Read after the note: what it names was forgotten before, or is named still.
            table = self.publisher.caught_up(self.store)[0]
            home = url_of(self.store.directory)
            live = {f"{home}/{file['path']}" for file in self.store.live_files()}
            unneeded = _unneeded(table, urls)
            places = (f"{home}/{DATA}/", f"{table.location.rstrip('/')}/")
            going = sorted(url for url in unneeded - live if url.startswith(places))
            failed = self._gone(table, going, f"{home}/")
            if unneeded == urls and not failed:
                notes.drop(name)

    def _gone(self, table: CatalogTable, urls: list[str], home: str) -> Mapping[str, str]:
        """Delete files; returns why some could not be deleted. Those below `home` in an object store go by few
        requests; Iceberg's library has several for each file."""
        failed: dict[str, str] = {}
        objects = self.store.objects
        for at in range(0, len(urls), DELETED_AT_ONCE):
            some = urls[at : at + DELETED_AT_ONCE]
            ours = [url for url in some if url.startswith(home)] if objects is not None else []
            left = _deleted(table, sorted({*some} - {*ours}))
            if objects is not None:
                refused = objects.delete_each([url.removeprefix(home) for url in ours])
                left |= {f"{home}{key}": why for key, why in refused.items()}
            self.deleted += len(some) - len(left)
            failed |= left
            self.not_deleted |= left
        return failed


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else default


def _only_in(table: CatalogTable, ids: tuple[int, ...]) -> frozenset[str]:
    return table.history(lambda history: history.only_in(ids))


def _forget(table: CatalogTable, ids: tuple[int, ...]) -> None:
    table.history(lambda history: history.forget(ids))


def _unneeded(table: CatalogTable, urls: frozenset[str]) -> frozenset[str]:
    return table.history(lambda history: history.unneeded(urls))


def _deleted(table: CatalogTable, urls: list[str]) -> dict[str, str]:
    return table.history(lambda history: history.delete(urls))
