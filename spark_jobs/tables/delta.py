"""Delta Lake: a version's files are appended in one transaction, which the table accepts once (txnAppId, txnVersion).
The table is the export's `data/`."""

import json
import os
from collections.abc import Iterable
from typing import Any

from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import DATA, Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.session import Workers, sql_session
from logyard.spark_jobs.tables.publisher import (
    TableFailed,
    begin_plainly,
    check_same,
    need_class,
    of_table,
    properties,
    said,
)

NEEDS = "io.delta.sql.DeltaSparkSessionExtension"
# A version that the table has is among its newest commits, unless others wrote this many since.
LOOKED_AT = 100
PACKAGE = "Delta Lake (io.delta:delta-spark_SPARK_2.13)"


class DeltaTable:
    """A Delta table beside the manifests."""

    def __init__(self, workers: Workers, output: Output) -> None:
        self._workers, self._output = workers, output

    def check(self) -> None:
        need_class(self._workers.context(), NEEDS, PACKAGE)

    def begin(self, store: ManifestStore, manifest: Manifest, layout: dict[str, Any]) -> tuple[dict[str, Any], Output]:
        return begin_plainly(self, store, manifest, layout, self._output)

    def kept(self, store: ManifestStore) -> Iterable[str]:
        return ()

    def publish(self, store: ManifestStore, manifest: Manifest) -> None:
        """Append, then drop what was staged: a crash in between leaves a version that Delta skips."""
        staged = [os.path.join(store.directory, str(f["staged"])) for f in of_table(manifest.files, DATA)]
        there = [path for path in staged if os.path.exists(path)]
        # Only the first of a version's removals follows its append: then Delta has the version, whatever is left.
        if there:
            try:
                self.append_files(store, manifest, there)
            except TableFailed:
                raise
            except Exception as error:
                raise TableFailed(f"Delta Lake refused version {manifest.version}: {said(error)}") from error
        store.finish_moves(manifest, without=DATA)

    def append_files(self, store: ManifestStore, manifest: Manifest, paths: list[str]) -> None:
        spark = sql_session(self._workers.context())
        spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        base = os.path.join(store.staging(manifest.run_id), DATA)
        frame = spark.read.option("mergeSchema", "true").option("basePath", base).parquet(*paths)
        write = frame.write.format("delta").mode("append").option("mergeSchema", "true")
        write = write.option("txnAppId", str(manifest.layout["id"])).option("txnVersion", manifest.version)
        write = write.option("userMetadata", properties(manifest))
        if self._output.partition_by:
            write = write.partitionBy(*(column.name for column in self._output.partition_by))
        home = os.path.join(os.path.abspath(store.directory), DATA)
        write.save(home)
        # Delta silently skips a version that it has.
        check_same(_told(spark, home, manifest.version), manifest, "Delta's table")


def _told(spark: Any, home: str, version: int) -> str | None:
    """The offsets stored with the latest append of this version, None if the newest commits have none."""
    escaped = home.replace("`", "``")
    for row in spark.sql(f"DESCRIBE HISTORY delta.`{escaped}` LIMIT {LOOKED_AT}").collect():
        try:
            if json.loads(row["userMetadata"])["version"] == version:
                return str(row["userMetadata"])
        except (ValueError, KeyError, TypeError):
            continue
    return None
