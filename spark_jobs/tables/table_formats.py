"""The formats of a table (`--format`): who publishes versions into it, and Spark's settings for it."""

from collections.abc import Mapping

from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.objects.store import ObjectStore
from logyard.spark_jobs.session import Workers
from logyard.spark_jobs.tables.catalog import IcebergCatalog
from logyard.spark_jobs.tables.catalog_table import CatalogPublisher
from logyard.spark_jobs.tables.delta import DeltaTable
from logyard.spark_jobs.tables.delta_log import DeltaLog
from logyard.spark_jobs.tables.iceberg import IcebergTable
from logyard.spark_jobs.tables.parquet import ParquetDirectory
from logyard.spark_jobs.tables.publisher import Publisher

TABLE_FORMATS = ("parquet", "delta", "iceberg")


def publisher(name: str, workers: Workers, output: Output, objects: ObjectStore | None = None) -> Publisher:
    """Return the publisher of committed versions for a table format, in a directory or an object store."""
    if name == "delta":
        return DeltaTable(workers, output) if objects is None else DeltaLog(objects, output)
    return IcebergTable(workers, output) if name == "iceberg" else ParquetDirectory(output)


def in_catalog(catalog: Mapping[str, str], table: str, output: Output, objects: ObjectStore | None = None) -> Publisher:
    """Return the publisher of committed versions for a table of an Iceberg catalog with these settings; raises
    CatalogFailed."""
    return CatalogPublisher(IcebergCatalog(catalog, {} if objects is None else objects.settings), table, output)


def settings(name: str) -> dict[str, str]:
    """Return the settings that Spark needs for a format in a directory."""
    if name != "delta":
        return {}
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
