"""An export's versions in a table of an Iceberg catalog: each is one commit, whoever dies or comes first.

The manifests decide who writes a version; the table takes each version once, in order. The commit that adds a version's
files, and takes those away that the version removes, also sets the table's properties `logyard.version` and
`logyard.run`, on condition that nobody committed since the table was read. Unlike properties of snapshots they do not
expire. After any error the table is read again: it has the version, or it is tried once more.

Removed files stay where they are: earlier snapshots name them (`maintenance/` deletes them when these expire).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import DATA, Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.objects.deciding import PAUSES_S
from logyard.spark_jobs.tables.catalog import CatalogFailed, CatalogTable, IcebergCatalog, NewFile
from logyard.spark_jobs.tables.iceberg import OFFSETS, VERSION, schema_json
from logyard.spark_jobs.tables.partition_transforms import PartitionBy, transform_of, transformed
from logyard.spark_jobs.tables.publisher import NotInTable, TableFailed, of_table, properties

EXPORT, DESTINATION, RUN = "logyard.export", "logyard.destination", "logyard.run"
APPEND, OVERWRITE, REPLACE = "append", "overwrite", "replace"
_ELSEWHERE = "use another --destination and --table"


class CatalogPublisher:
    """Publishes committed versions into one table of a catalog."""

    def __init__(
        self, catalog: IcebergCatalog, name: str, output: Output, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """:param name: the table's, with its namespace: `lake.flights`."""
        self._catalog, self._name, self._output, self._sleep = catalog, name, output, sleep
        self._by = [transform_of(column) for column in output.partition_by]
        self._seen: CatalogTable | None = None

    def check(self) -> None:
        """Read the table; raises CatalogFailed. It is read before the manifests: these are never older then."""
        self._seen = self._catalog.load(self._name)

    def begin(self, store: ManifestStore, manifest: Manifest, layout: dict[str, Any]) -> tuple[dict[str, Any], Output]:
        """Return the layout with the table's ids, and the output with those of its columns; publishes a version that
        the table lacks. Raises TableFailed, CatalogFailed."""
        table = self._seen if manifest.version else self._created(store, layout)
        if table is None:
            raise TableFailed(f"table {self._name} is gone from the catalog, and the export goes on: {_ELSEWHERE}")
        if not manifest.version:
            layout = {**layout, "id": table.properties.get(EXPORT), "table_uuid": table.uuid}
        self._check_owner(table, layout)
        self._check_state(table, manifest)
        if _version(table) < manifest.version:
            self.publish(store, manifest)
        return layout, replace(self._output, ids=self._grown().ids)

    def caught_up(self, store: ManifestStore) -> tuple[CatalogTable, Manifest]:
        """Return the table with the newest version in it, and that version; raises TableFailed, CatalogFailed."""
        table = self._loaded()  # before the manifests, which are never older then
        manifest = store.latest()
        if not manifest.version:
            raise TableFailed(f"{store.directory} has no export")
        if manifest.layout.get("table") != self._name:
            raise TableFailed(f"{store.directory} is an export into {manifest.layout.get('table') or 'no table'}")
        self._check_owner(table, manifest.layout)
        self._check_state(table, manifest)
        if _version(table) == manifest.version:
            return table, manifest
        self.publish(store, manifest)
        return self._loaded(), manifest

    def kept(self, store: ManifestStore) -> Iterable[str]:
        """Return the paths of the export's files that any state of the table names."""
        table = self._catalog.load(self._name)
        home = f"{url_of(store.directory)}/"
        urls = [] if table is None else table.history(lambda history: history.named())
        return [url.removeprefix(home) for url in urls if url.startswith(home)]

    def _loaded(self) -> CatalogTable:
        table = self._catalog.load(self._name)
        if table is None:
            raise TableFailed(f"table {self._name} is gone from the catalog: {_ELSEWHERE}")
        return table

    def publish(self, store: ManifestStore, manifest: Manifest) -> None:
        """Add a version's files, once; raises TableFailed, CatalogFailed."""
        store.finish_moves(manifest, keep_staging=True, keep_removed=DATA)
        error: CatalogFailed | None = None
        for pause in (*PAUSES_S, 0.0):
            try:
                self._publish_once(store, manifest)
                break
            except CatalogFailed as failed:
                error = failed
                self._sleep(pause)
        else:
            raise CatalogFailed(f"version {manifest.version} is committed, and not in table {self._name} yet: {error}")
        if manifest.run_id:
            store.drop_staging(manifest.run_id)

    def _publish_once(self, store: ManifestStore, manifest: Manifest) -> None:
        """Send the version if the table lacks it. Raises CatalogFailed where the answer says nothing: look again."""
        table = self._loaded()
        self._check_owner(table, manifest.layout)
        if _version(table) >= manifest.version:
            if _version(table) == manifest.version:
                self._check_state(table, manifest)
            return
        if _version(table) < manifest.version - 1:
            raise TableFailed(
                f"table {self._name} has version {_version(table)}, and version {manifest.version} is next:"
                f" it is older than the manifests; {_ELSEWHERE}"
            )
        self._send(store, manifest, table)

    def _send(self, store: ManifestStore, manifest: Manifest, table: CatalogTable) -> None:
        told = {VERSION: str(manifest.version), RUN: manifest.run_id}
        snapshot = {**told, OFFSETS: properties(manifest)}
        files = [self._file(store, row, table) for row in of_table(manifest.files, DATA)]
        home = url_of(store.directory)
        removed = [f"{home}/{path}" for path in manifest.removed if path.startswith(f"{DATA}/")]
        # Every record is a row: such a version only puts rows together.
        is_merge = manifest.layout.get("mode") != "upsert" and bool(manifest.removed)
        kind = APPEND if not removed else REPLACE if is_merge else OVERWRITE
        try:
            table.change(kind, files, removed, snapshot, told)
        except NotInTable as problem:
            if not is_merge:
                raise TableFailed(
                    f"version {manifest.version} replaces files of table {self._name}, and {problem}: with --mode"
                    f" upsert the rows are the export's alone; roll it back to the snapshot of version"
                    f" {_version(table)}"
                ) from None
            # Another program rewrote those files first: it has their rows, and the merged files would add them again.
            table.change(APPEND, (), (), snapshot, told)

    def _created(self, store: ManifestStore, layout: Mapping[str, Any]) -> CatalogTable | None:
        """Return the table of an export without versions, which a run made that died early, or this one."""
        home, found = url_of(store.directory), self._seen
        if found is None:
            location = None if self._catalog.chooses_locations else f"{home}/{DATA}"
            told = {EXPORT: str(layout["id"]), DESTINATION: home}
            self._catalog.create(self._name, schema_json(self._output.schema, []), self._by, told, location)
            found = self._catalog.load(self._name)
        if found is not None and found.properties.get(DESTINATION, home) != home:
            raise TableFailed(f"table {self._name} is another export's: {_ELSEWHERE}")
        return found

    def _check_owner(self, table: CatalogTable, layout: Mapping[str, Any]) -> None:
        known = table.properties.get(EXPORT)
        if known is None:
            raise TableFailed(f"table {self._name} was not made by an export: name another --table")
        if layout.get("table_uuid") not in (None, table.uuid):
            raise TableFailed(f"table {self._name} was dropped and created again: {_ELSEWHERE}")
        if known != layout["id"]:
            raise TableFailed(f"table {self._name} is another export's: {_ELSEWHERE}")
        if not table.has_partitions(self._by):
            raise TableFailed(f"table {self._name} is partitioned in another way than --partition-by says")

    def _check_state(self, table: CatalogTable, manifest: Manifest) -> None:
        """Raise TableFailed if the table has versions that the manifests do not know."""
        has, run = _version(table), table.properties.get(RUN, "")
        if has > manifest.version or (has and has == manifest.version and run != manifest.run_id):
            raise TableFailed(
                f"table {self._name} has a version {has} of run {run}, and the manifests end with version"
                f" {manifest.version} of run {manifest.run_id or 'none'}: they are older than the table; {_ELSEWHERE}"
            )

    def _grown(self) -> CatalogTable:
        """Return the table with all columns of this run."""
        wanted = schema_json(self._output.schema, [])
        for pause in (*PAUSES_S, 0.0):
            table = self._catalog.load(self._name)
            if table is not None and (_names(wanted) <= set(table.ids)):
                return table
            if table is not None:
                table.grow(wanted)
            self._sleep(pause)
        raise CatalogFailed(f"table {self._name} did not get this run's columns: others change it all the time")

    def _file(self, store: ManifestStore, row: Mapping[str, Any], table: CatalogTable) -> NewFile:
        url = f"{url_of(store.directory)}/{row['path']}"
        values = tuple(_value(one, row, table) for one in self._by)
        return NewFile(url, int(row["rows"]), int(row["bytes"]), row["stats"], values)


def _value(by: PartitionBy, row: Mapping[str, Any], table: CatalogTable) -> Any:
    """Return a partition column's value of a file; raises TableFailed."""
    if by.transform == "identity":
        return str(row["topic"])
    # Rows of a file share a directory, so all have its value; those without a time have none.
    lower, upper = (row["stats"][side].get(str(table.ids[by.source])) for side in ("lower", "upper"))
    if lower is None:
        return None
    values = {transformed(by.transform, int(lower)), transformed(by.transform, int(upper))}
    if len(values) > 1:
        raise TableFailed(f"{row['path']}: its rows have several values of {by.name}")
    return values.pop()


def url_of(directory: str) -> str:
    """Return the URL by which Iceberg's readers know an export's place."""
    return directory if "://" in directory else f"file://{directory}"


def _version(table: CatalogTable) -> int:
    return int(table.properties.get(VERSION, "0"))


def _names(schema: Mapping[str, Any], above: str = "") -> set[str]:
    """Return the names, with dots, of all fields of a schema."""
    found = set()
    for field in schema["fields"]:
        name = f"{above}{field['name']}"
        found |= {name, *_below(field["type"], name)}
    return found


def _below(kind: Any, name: str) -> set[str]:
    if not isinstance(kind, dict):
        return set()
    if kind["type"] == "struct":
        return _names(kind, f"{name}.")
    parts = ("key", "value") if kind["type"] == "map" else ("element",)
    return {n for part in parts for n in (f"{name}.{part}", *_below(kind[part], f"{name}.{part}"))}
