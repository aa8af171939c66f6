"""Maintenance of an export's table in an Iceberg catalog, by the job of `spark_jobs/maintenance/`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import AirflowSkipException
from logyard.operators.fields import as_mapping
from logyard.operators.spark import SparkSegmentsOperator, catalog_file, option_words, refuse_credentials, store_file
from logyard.operators.spark_place import SparkPlace


class MaintainTableOperator(SparkSegmentsOperator):
    """Keep an export's table in an Iceberg catalog small: small files become larger ones, old snapshots expire, and
    files that nothing names any more are deleted.

    Exports and other programs may write meanwhile. No cluster is asked. The result has `files_merged`, `files_made`,
    `bytes_before`, `bytes_after`, `snapshots_expired`, `snapshots_left`, `files_deleted`, and in `not_rewritten` and
    `not_expired` why one of the two was left out. The task fails if a file could not be deleted; the next run tries
    again.

    :param destination: the export's destination. (templated)
    :param table: the table in the catalog, with its namespace. (templated)
    :param catalog_conn_id: the catalog's connection (`iceberg` or `generic`). (templated)
    :param store_conn_id: the connection with an object store's credentials, as an export has it. (templated)
    :param older_than_hours: how long a snapshot stays after the next one took its place; None: the table's own
        setting (`history.expire.max-snapshot-age-ms`), or 120. (templated)
    :param keep: how many snapshots stay in any case; None: the table's own setting, or 1. (templated)
    :param target_file_mib: files that are four times smaller than this are merged; 0: none; None: 128. (templated)
    :param skip_without: skip the task, instead of failing, if destination and table are not given.
    """

    job = "maintenance"
    lineage = None
    _numbers: ClassVar[tuple[str, ...]] = ("older_than_hours", "keep", "target_file_mib")
    template_fields = (
        *SparkSegmentsOperator.template_fields,
        "destination",
        "table",
        "catalog_conn_id",
        "store_conn_id",
        "older_than_hours",
        "keep",
        "target_file_mib",
    )

    def __init__(
        self,
        *,
        destination: str,
        table: str,
        catalog_conn_id: str,
        store_conn_id: str | None = None,
        older_than_hours: int | str | None = None,
        keep: int | str | None = None,
        target_file_mib: int | str | None = None,
        skip_without: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(topics=(), **kwargs)
        self.destination = destination
        self.table = table
        self.catalog_conn_id = catalog_conn_id
        self.store_conn_id = store_conn_id
        self.older_than_hours = older_than_hours
        self.keep = keep
        self.target_file_mib = target_file_mib
        self.skip_without = skip_without

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        if self.skip_without and not (self.destination and self.table and self.catalog_conn_id):
            raise AirflowSkipException("no table is given, neither by the factory nor by the form")
        return super().execute(context)

    def job_files(self, directory: Path) -> dict[str, Path]:
        files = {"--catalog": catalog_file(self.catalog_conn_id, directory)}
        return files | ({"--store": store_file(self.store_conn_id, directory)} if self.store_conn_id else {})

    def job_arguments(self, topics: Sequence[str], place: SparkPlace) -> list[str]:
        if not (self.destination and self.table):
            raise BadSettings("maintenance: name the destination and the table")
        refuse_credentials("maintenance", self.destination)
        command = ["--destination", self.destination, "--table", self.table]
        for name in self._numbers:
            if (value := getattr(self, name)) not in (None, "", "None"):
                command += [f"--{name.replace('_', '-')}", str(value)]
        return [*command, *option_words(as_mapping("options", self.options)), *self.arguments]

    def _security(self, directory: Path) -> dict[str, Path]:
        return {}  # no broker is asked
