"""Apache Iceberg: a version's Parquet files are added to a table by its metadata alone. The table is the export's
`data/`, a path (Hadoop) table.

Iceberg's appends never conflict, so a version is staged under its own `wap.id` and then cherry-picked, which the table
refuses to do twice for one id. The table's ids are checked first, and the snapshot has the offsets.

The files have no field ids of Iceberg: readers find columns by the table's name mapping, as in imported files. Only
Iceberg's core is used, which does not depend on Spark, so the runtime for another Spark version works.
"""

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import DATA, Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.partition_columns import values_of
from logyard.spark_jobs.session import Workers
from logyard.spark_jobs.tables.publisher import (
    TableFailed,
    begin_plainly,
    check_same,
    need_class,
    of_table,
    properties,
    said,
)

NEEDS = "org.apache.iceberg.hadoop.HadoopTables"
PACKAGE = "Apache Iceberg (org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13)"
NAME_MAPPING = "schema.name-mapping.default"
WAP, PUBLISHED_WAP, VERSION, OFFSETS = "wap.id", "published-wap-id", "logyard.version", "logyard.offsets"
_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


class IcebergTable:
    """An Iceberg table beside the manifests."""

    def __init__(self, workers: Workers, output: Output) -> None:
        self._workers, self._output = workers, output

    def check(self) -> None:
        need_class(self._workers.context(), NEEDS, PACKAGE)

    def begin(self, store: ManifestStore, manifest: Manifest, layout: dict[str, Any]) -> tuple[dict[str, Any], Output]:
        return begin_plainly(self, store, manifest, layout, self._output)

    def kept(self, store: ManifestStore) -> Iterable[str]:
        return ()

    def publish(self, store: ManifestStore, manifest: Manifest) -> None:
        """Move the files, append them, then delete the staging directory (its existence says that work is left)."""
        pending = bool(manifest.run_id) and os.path.isdir(store.staging(manifest.run_id))
        store.finish_moves(manifest, keep_staging=True)
        files = of_table(manifest.files, DATA)
        if pending and files:
            try:
                self.append_files(store, manifest, files)
            except TableFailed:
                raise
            except Exception as error:
                raise TableFailed(f"Iceberg refused version {manifest.version}: {said(error)}") from error
        if manifest.run_id:
            store.drop_staging(manifest.run_id)

    def append_files(self, store: ManifestStore, manifest: Manifest, files: list[Any]) -> None:
        context = self._workers.context()
        java = context._jvm.org.apache.iceberg
        home = os.path.join(os.path.abspath(store.directory), DATA)
        table = self._table(java, context._jsc.hadoopConfiguration(), home)
        line = f"logyard-{manifest.layout['id']}-"
        name = f"{line}{manifest.version}"
        published = _published(table, line, manifest.version)
        if published is not None:
            check_same(published.offsets, manifest, "Iceberg's table")
            return
        append = table.newAppend().stageOnly()
        append = append.set(WAP, name).set(VERSION, str(manifest.version)).set(OFFSETS, properties(manifest))
        for file in files:
            append = append.appendFile(self._data_file(java, table, home, store.directory, file))
        append.commit()
        table.refresh()
        try:
            table.manageSnapshots().cherrypick(append.updateEvent().snapshotId()).commit()
        except Exception:
            # Another run that finishes this version may have picked it first.
            table.refresh()
            if _published(table, line, manifest.version) is None:
                raise

    def _table(self, java: Any, configuration: Any, home: str) -> Any:
        tables = java.hadoop.HadoopTables(configuration)
        by = [column.name for column in self._output.partition_by]
        schema = java.SchemaParser.fromJson(json.dumps(schema_json(self._output.schema, by)))
        if not tables.exists(home):
            spec = java.PartitionSpec.builderFor(schema)
            for column in by:
                spec = spec.identity(column)
            tables.create(schema, spec.build(), {}, home)
        table = tables.load(home)
        if table.properties().get(NAME_MAPPING) is None:
            # By the table's own ids: Iceberg numbers columns anew when it creates a table.
            mapping = java.mapping.NameMappingParser.toJson(java.mapping.MappingUtil.create(table.schema()))
            table.updateProperties().set(NAME_MAPPING, mapping).commit()
        update = table.updateSchema().unionByNameWith(schema)
        if not update.apply().sameSchema(table.schema()):
            update.commit()
            table.refresh()
        return table

    def _data_file(self, java: Any, table: Any, home: str, directory: str, file: Any) -> Any:
        path = os.path.join(os.path.abspath(directory), str(file["path"]))
        made = java.DataFiles.builder(table.spec()).withPath(path).withFormat("PARQUET")
        made = made.withFileSizeInBytes(int(file["bytes"])).withRecordCount(int(file["rows"]))
        if self._output.partition_by:
            # Not by `withPartitionPath`, which takes what is escaped in a path for the value.
            values = values_of(os.path.relpath(os.path.dirname(path), home))
            made = made.withPartitionValues([values[column.name] for column in self._output.partition_by])
        return made.build()


class _Published(NamedTuple):
    """A version that a table has; `offsets` is None where it was picked onto another snapshot."""

    offsets: str | None


def _published(table: Any, line: str, version: int) -> _Published | None:
    """Return a version as the table has it, None if it was never added.

    Every version is added before the next one is committed (export/following.py), so the look goes no further back than
    to an earlier version of the same export. Each snapshot costs a few calls of the JVM.

    :param line: how the ids (`wap.id`) of this export's versions begin.
    """
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        for name in (summary.get(WAP), summary.get(PUBLISHED_WAP)):
            number = name.removeprefix(line) if name is not None and name.startswith(line) else ""
            if number == str(version):
                return _Published(summary.get(OFFSETS))
            if number.isdigit() and int(number) < version:
                return None
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None
    return None


def schema_json(schema: pa.Schema, partition_by: list[str]) -> dict[str, Any]:
    """Return a schema as Iceberg's JSON, partition columns (text) last; ids are numbered from 1."""
    ids = iter(range(1, 1 << 30))
    fields = [*schema, *(pa.field(name, pa.string()) for name in partition_by)]
    return {"type": "struct", "schema-id": 0, "fields": [_field(f, ids) for f in fields]}


def _field(field: pa.Field, ids: Any) -> dict[str, Any]:
    row = {"id": next(ids), "name": field.name, "required": not field.nullable}
    return row | {"type": _type(field.type, ids)}


def _type(kind: pa.DataType, ids: Any) -> Any:
    if kind in _TYPES:
        return _TYPES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamptz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(f, ids) for f in kind]}
    if pa.types.is_map(kind):
        inner = {"type": "map", "key-id": next(ids), "key": _type(kind.key_type, ids), "value-id": next(ids)}
        return inner | {"value-required": False, "value": _type(kind.item_type, ids)}
    inner = {"type": "list", "element-id": next(ids), "element-required": False}
    return inner | {"element": _type(kind.value_type, ids)}
