"""Delta Lake in an object store: a version's files are added by a commit of Delta's own protocol, `_delta_log/N.json`,
created under a name that must not exist. Neither Spark's SQL nor Delta's jar is needed.

Each commit has a `txn` action with the export's id and the manifest's version: a version that the log has is not added
again. Another writer may take a number first; then the log is read on, and the next number is tried. The table's
metadata is written by the first commit, and again when the schema grows.

The log is listed from a commit of ours on: the last one that this run knows, or that the manifest names (`delta_commit`
of its layout, which each run sets anew). If that one is not there, because somebody has cleaned the log, all of it is.
"""

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import DATA, Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.partition_columns import NOWHERE, values_of
from logyard.spark_jobs.objects.deciding import create_once
from logyard.spark_jobs.objects.store import ObjectStore
from logyard.spark_jobs.tables.publisher import TableFailed, begin_plainly, check_same, of_table, properties

LOG = f"{DATA}/_delta_log"
# Commits that are read back from the newest one to find ours; others' may lie between.
LOOKED_AT = 1000
COMMIT = "delta_commit"
_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
Action = Mapping[str, Any]


class DeltaLog:
    """A Delta table in an object store."""

    def __init__(self, objects: ObjectStore, output: Output) -> None:
        self._objects, self._output = objects, output
        # The newest commit of ours that is known; -1: none.
        self._known = -1

    def check(self) -> None:
        pass

    def begin(self, store: ManifestStore, manifest: Manifest, layout: dict[str, Any]) -> tuple[dict[str, Any], Output]:
        layout, output = begin_plainly(self, store, manifest, layout, self._output)
        return (layout if self._known < 0 else {**layout, COMMIT: self._known}), output

    def kept(self, store: ManifestStore) -> Iterable[str]:
        return ()

    def publish(self, store: ManifestStore, manifest: Manifest) -> None:
        """Add a version's files, once; raises TableFailed, Undecided, StoreFailed."""
        files = of_table(manifest.files, DATA)
        self._known = max(self._known, int(manifest.layout.get(COMMIT, -1)))
        while files:
            newest, ours = self._newest()
            if ours is not None and _txn(ours, manifest)["version"] >= manifest.version:
                if _txn(ours, manifest)["version"] == manifest.version:
                    check_same(_info(ours).get("userMetadata"), manifest, "Delta's table")
                return
            if self._append(newest + 1, ours, manifest, files):
                return
        store.finish_moves(manifest)

    def _newest(self) -> tuple[int, Sequence[Action] | None]:
        """Return the newest commit's number (-1: none), and the actions of the newest commit that is an export's."""
        if self._known >= 0:
            numbers = self._numbers(self._known)
            if numbers[:1] == [self._known] and (ours := self._newest_ours(numbers)) is not None:
                return numbers[-1], ours
        numbers = self._numbers(0)
        ours = self._newest_ours(numbers)
        if numbers and ours is None:
            raise TableFailed(f"{self._objects.url}/{LOG}: none of the last {len(numbers)} commits is of this export")
        return (numbers[-1] if numbers else -1), ours

    def _numbers(self, first: int) -> list[int]:
        """Return the commits from this one on, in order."""
        there = self._objects.list(LOG, _key(first - 1) if first else "")
        return sorted(number for found in there if (number := _number(found.key)) >= 0)

    def _newest_ours(self, numbers: Sequence[int]) -> Sequence[Action] | None:
        for number in reversed(numbers[-LOOKED_AT:]):
            actions = list(_actions(self._objects.get(_key(number))))
            if any("txn" in action and "logyard" in _info(actions) for action in actions):
                self._known = number
                return actions
            if any("protocol" in action for action in actions):
                raise TableFailed(f"{self._objects.url}/{_key(number)}: another program made or changed this table")
        return None

    def _append(self, number: int, ours: Sequence[Action] | None, manifest: Manifest, files: Sequence[Any]) -> bool:
        """Create a commit; returns False if another one has its number."""
        mine, schema = uuid.uuid4().hex, json.dumps(self._schema(), sort_keys=True)
        known = ours is not None and _info(ours)["logyard"]["schema"] == schema
        told = {"write": mine, "schema": schema, "version": manifest.version}
        actions: list[Action] = [
            {
                "commitInfo": {
                    "operation": "WRITE",
                    "operationParameters": {"mode": "Append"},
                    "isBlindAppend": True,
                    "userMetadata": properties(manifest),
                    "logyard": told,
                }
            },
            {"txn": {"appId": str(manifest.layout["id"]), "version": manifest.version}},
        ]
        if ours is None:
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        if not known:
            actions.append({"metaData": self._metadata(manifest, schema)})
        actions += [{"add": self._add(file)} for file in files]
        content = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()

        def is_ours(there: bytes) -> bool:
            return bool(_info(list(_actions(there))).get("logyard", {}).get("write") == mine)

        created = create_once(self._objects, _key(number), content, is_ours)
        self._known = number if created else self._known
        return created

    def _metadata(self, manifest: Manifest, schema: str) -> Action:
        return {
            "id": str(uuid.UUID(str(manifest.layout["id"]))),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": self._by,
            "configuration": {},
        }

    @property
    def _by(self) -> list[str]:
        return [column.name for column in self._output.partition_by]

    def _schema(self) -> dict[str, Any]:
        fields = [*self._output.schema, *(pa.field(name, pa.string()) for name in self._by)]
        return _struct(fields)

    def _add(self, file: Mapping[str, Any]) -> Action:
        path = os.path.relpath(str(file["path"]), DATA)
        values = values_of(os.path.dirname(path))
        return {
            "path": quote(path),
            "partitionValues": {n: None if values[n] == NOWHERE else values[n] for n in self._by},
            "size": int(file["bytes"]),
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": int(file["rows"])}),
        }


def _key(number: int) -> str:
    return f"{LOG}/{number:020d}.json"


def _number(key: str) -> int:
    stem = key.rpartition("/")[2].removesuffix(".json")
    return int(stem) if key.endswith(".json") and len(stem) == 20 and stem.isdigit() else -1


def _actions(content: bytes) -> Iterator[Action]:
    # At "\n" alone: other writers' texts may have what `str.splitlines` takes for an end too, such as U+2028.
    for line in content.decode().split("\n"):
        if line.strip():
            yield json.loads(line)


def _info(actions: Sequence[Action]) -> Mapping[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def _txn(actions: Sequence[Action], manifest: Manifest) -> Mapping[str, Any]:
    """Return the commit's transaction; raises TableFailed if it is another export's."""
    found: Mapping[str, Any] = next(action["txn"] for action in actions if "txn" in action)
    if found["appId"] != str(manifest.layout["id"]):
        raise TableFailed("Delta's table is another export's: the manifests were deleted; use another --destination")
    return found


def _struct(fields: Sequence[pa.Field]) -> dict[str, Any]:
    rows = [{"name": f.name, "type": _type(f.type), "nullable": f.nullable, "metadata": {}} for f in fields]
    return {"type": "struct", "fields": rows}


def _type(kind: pa.DataType) -> Any:
    if kind in _TYPES:
        return _TYPES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return _struct(list(kind))
    if pa.types.is_map(kind):
        inner = {"keyType": _type(kind.key_type), "valueType": _type(kind.item_type)}
        return {"type": "map", **inner, "valueContainsNull": True}
    return {"type": "array", "elementType": _type(kind.value_type), "containsNull": True}
