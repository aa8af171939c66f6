"""Plain Parquet files: the export's data/ is the table."""

from collections.abc import Iterable
from typing import Any

from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.tables.publisher import begin_plainly


class ParquetDirectory:
    """Publishes a version by moving its staged files to their final paths."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def check(self) -> None:
        pass

    def begin(self, store: ManifestStore, manifest: Manifest, layout: dict[str, Any]) -> tuple[dict[str, Any], Output]:
        return begin_plainly(self, store, manifest, layout, self._output)

    def kept(self, store: ManifestStore) -> Iterable[str]:
        return ()

    def publish(self, store: ManifestStore, manifest: Manifest) -> None:
        store.finish_moves(manifest)
