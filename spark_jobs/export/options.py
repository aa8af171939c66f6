"""The options of an export's command line, and which of them all runs into one directory must share."""

import argparse
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from logyard.spark_jobs.command import natural, positive
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.export import merges, partition_columns, upsert
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.schema import ddl
from logyard.spark_jobs.export.schema.formats import SIDE_FORMATS, SideFormat
from logyard.spark_jobs.export.schema.formats import Formats as SideFormats
from logyard.spark_jobs.objects import urls
from logyard.spark_jobs.objects.store import settings_of
from logyard.spark_jobs.segments import splits
from logyard.spark_jobs.segments.arrow import RECORD_SCHEMA
from logyard.spark_jobs.segments.splits import OWNER_SCHEMA
from logyard.spark_jobs.tables import table_formats
from logyard.spark_jobs.tables.partition_transforms import transform_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that only an export has."""
    add = parser.add_argument
    add_destination(parser)
    add_merging(parser)
    add("--log-dir", metavar="PATH", help="export a directory of a stopped broker instead of a cluster")
    add("--columns", default=",".join(splits.COLUMNS), metavar="A,B,…", help="columns to write")
    add("--isolation", choices=["read_committed", "read_uncommitted"], default="read_committed")
    add("--format", choices=table_formats.TABLE_FORMATS, default="parquet", help="format of the table (parquet)")
    add("--mode", choices=["append", "upsert"], default="append", help="every record, or the latest of each key")
    add("--key-format", choices=SIDE_FORMATS, default="binary", help="format of keys (binary)")
    add("--value-format", choices=SIDE_FORMATS, default="binary", help="format of values (binary)")
    add("--key-schema", metavar="FILE", help="the columns of JSON keys, in Spark's DDL: id BIGINT NOT NULL, …")
    add("--value-schema", metavar="FILE", help="the columns of JSON values, likewise")
    add(
        "--partition-by",
        default="",
        metavar="A,B,…",
        help="directories: topic, date, or NAME=PATTERN of the timestamp (hour=%%Y-%%m-%%dT%%H)",
    )
    add("--split-mib", type=positive, default=64, metavar="MIB", help="log bytes per file (64)")
    add(
        "--commit-mib",
        type=positive,
        metavar="MIB",
        help="log bytes per committed version (4096, or four files per Spark core if that is more)",
    )
    add(
        "--bucket-mib",
        type=positive,
        default=128,
        metavar="MIB",
        help="upsert: how much of the table one task holds, approximately (128)",
    )
    add(
        "--allow-data-loss",
        action="store_true",
        help="continue after offsets that were deleted before they were exported",
    )
    add(
        "--accept-new-topic",
        action="store_true",
        help="export a topic that was deleted and created again, from its start",
    )


def add_destination(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where an export is."""
    add = parser.add_argument
    add(
        "--destination",
        required=True,
        metavar="DIR|URL",
        help="directory that executors see too, or s3://, gs://, abfss:// (az://) BUCKET/FOLDER",
    )
    add(
        "--store",
        metavar="FILE",
        help="JSON file with an object store's credentials and endpoint; without it the environment is used",
    )
    add("--catalog", metavar="FILE", help="JSON file with the properties of an Iceberg catalog (PyIceberg's names)")
    add("--table", metavar="NAME", help="the table in the catalog, with its namespace: lake.flights")


def add_merging(parser: argparse.ArgumentParser) -> None:
    """Add the options of merges."""
    add = parser.add_argument
    add(
        "--target-file-mib",
        type=natural,
        default=128,
        metavar="MIB",
        help=f"merge neighbouring files that are {merges.SMALLER} times smaller than this; 0: never (128)",
    )
    add(
        "--merge-files",
        type=positive,
        default=merges.TOGETHER_MIN,
        metavar="N",
        help=f"merge this many small files even if they do not fill one ({merges.TOGETHER_MIN})",
    )


def _check_catalog(arguments: argparse.Namespace, output: Output) -> None:
    """Raise ExportRefused if the options do not fit a table in a catalog, or ask for one in part."""
    if not arguments.catalog and not arguments.table:
        return
    if arguments.format != "iceberg" or not (arguments.catalog and arguments.table):
        raise ExportRefused("a table in a catalog needs --format iceberg, --catalog FILE and --table NAMESPACE.TABLE")
    if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", arguments.table):
        raise ExportRefused(f"--table {arguments.table}: a name with its namespace is expected: lake.flights")
    if re.search("[?#]", arguments.destination):
        raise ExportRefused("--destination has '?' or '#', which Iceberg's readers do not take in a path")
    for column in output.partition_by:
        by = transform_of(column)
        if by.source not in output.columns:
            raise ExportRefused(f"--partition-by {column.text} needs the column {by.source}")


def directory_of(destination: str) -> str:
    """Return the directory (of a path or a file: URL) or the object store's URL that `--destination` names; raises
    ExportRefused, BadUrl.

    A directory is absolute, because executors have working directories of their own. HDFS is refused: a version is
    committed by a hard link that fails if its name is taken, or by a conditional write.
    """
    if urls.is_object_store(destination):
        urls.parse(destination)
        return destination.rstrip("/")
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", destination):
        return os.path.abspath(destination)
    path = _local_path(destination)
    if path is None:
        raise ExportRefused(
            f"--destination {destination}: an export goes to a directory that the driver and all executors see (a path,"
            " or file:///PATH), or to s3://, gs:// or abfss://; others: mount it, or copy the files that the manifests"
            " name"
        )
    return path


def _local_path(destination: str) -> str | None:
    """The path that a file: URL names on this machine, None for another URL."""
    try:
        url = urlsplit(destination)
    except ValueError:  # a bracket that is not closed, say
        return None
    is_here = url.scheme.lower() == "file" and url.netloc in ("", "localhost") and url.path.startswith("/")
    return unquote(url.path) if is_here else None


def store_of(arguments: argparse.Namespace) -> ManifestStore:
    """Return the destination's manifests; raises ExportRefused, BadUrl, StoreFailed."""
    directory = directory_of(arguments.destination)
    if arguments.store and not urls.is_object_store(directory):
        raise ExportRefused("--store is for an object store, and --destination is a directory")
    return ManifestStore(directory, settings_of(arguments.store) if arguments.store else {})


def output_of(arguments: argparse.Namespace) -> Output:
    """Return what the files will hold; raises ExportRefused, BadFormat, BadSchema, BadPartitioning, JobFailed."""
    columns = check_columns(arguments.columns.split(","))
    formats = SideFormats(_side("key", arguments), _side("value", arguments))
    by = partition_columns.parse(arguments.partition_by.split(",")) if arguments.partition_by else ()
    output = Output(columns, formats, by, arguments.mode == "upsert", {} if arguments.catalog else None)
    _check_catalog(arguments, output)
    if arguments.format == "iceberg" and not arguments.catalog and urls.is_object_store(arguments.destination):
        raise ExportRefused("--format iceberg in an object store needs --catalog and --table")
    if output.upsert:
        _check_upsert(output, arguments)
    if not output.schema.names:
        raise ExportRefused("--columns: all of them are partition columns, so files would have none")
    return output


def _check_upsert(output: Output, arguments: argparse.Namespace) -> None:
    lacking = [c for c in upsert.NEEDED if c not in output.columns]
    if lacking:
        raise ExportRefused(f"--mode upsert needs the column {lacking[0]}")
    if arguments.format != "parquet" and not arguments.catalog:
        raise ExportRefused(
            f"--mode upsert writes --format parquet, or iceberg into a table of a catalog, not {arguments.format}"
        )
    if output.partition_by:
        raise ExportRefused("--mode upsert keeps its files by partition and key: leave --partition-by out")
    if output.formats.key.name == "json":
        raise ExportRefused("--mode upsert tells rows apart by key: --key-format binary or string")


def _side(side: str, arguments: argparse.Namespace) -> SideFormat:
    path = getattr(arguments, f"{side}_schema")
    text = ""
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
            ddl.parse(text)
        except (OSError, UnicodeDecodeError) as error:
            raise JobFailed(f"--{side}-schema {path}: {error}") from None
        except ddl.BadSchema as error:
            raise ddl.BadSchema(f"--{side}-schema {path}: {error}") from None
    return SideFormat(side, getattr(arguments, f"{side}_format"), text)


def checked_layout(arguments: argparse.Namespace, output: Output, manifest: Manifest) -> dict[str, Any]:
    """Return the layout that this and every other run into the directory share; raises ExportRefused naming an option
    that differs from earlier runs."""
    layout = {
        "format": arguments.format,
        "mode": arguments.mode,
        "partition_by": ",".join(column.text for column in output.partition_by),
        "table": arguments.table or "",
    }
    for name, value in layout.items():
        known = manifest.layout.get(name, value)
        if known != value:
            raise ExportRefused(
                f"--{name.replace('_', '-')}: this directory was begun with {known or 'none'}, not {value or 'none'}:"
                " use another --destination"
            )
    return {**manifest.layout, **layout}


def words_of(output: Output) -> str:
    """Return text that differs if two outputs would write different files for the same split."""
    sides = (output.formats.key, output.formats.value)
    words = [[side.name, side.schema] for side in sides if side.name != "binary"]
    return repr([words, [column.text for column in output.partition_by]]) if words or output.partition_by else ""


def schema_id(output: Output) -> str:
    """Return a short name of the table's schema: files with the same name have the same columns."""
    return hashlib.sha256(ddl.render(output.schema).encode()).hexdigest()[:12]


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns; raises ExportRefused naming one that does not exist."""
    known = [*OWNER_SCHEMA.names, *RECORD_SCHEMA.names]
    for column in columns:
        if column not in known:
            raise ExportRefused(f"column {column!r} does not exist: choose among {', '.join(known)}")
    return tuple(columns)
