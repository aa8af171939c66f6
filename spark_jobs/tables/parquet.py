"""Plain Parquet files: the export's data/ is the table."""

from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore


class ParquetDirectory:
    """Publishes a version by moving its staged files to their final paths."""

    def check(self) -> None:
        pass

    def publish(self, store: ManifestStore, manifest: Manifest) -> None:
        store.finish_moves(manifest)
