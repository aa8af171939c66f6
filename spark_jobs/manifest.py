"""The public import for programs that read an export: `ManifestStore(DIR).live_files()`."""

from logyard.spark_jobs.export.manifest_store import ManifestStore

__all__ = ["ManifestStore"]
