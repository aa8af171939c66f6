"""Spark on partition segments: audit, compact, export; the jobs of `spark_jobs/` by spark-submit."""

import importlib.util
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import Asset, AssetAlias, Context

from logyard.admin.settings import BadSettings, has_login
from logyard.operators import assets, job_outcomes, lineages, written_tables, written_topics
from logyard.operators.airflow_names import (
    AirflowException,
    AirflowSkipException,
    BaseHook,
    mask_secret,
)
from logyard.operators.catalog_connection import secrets_of, settings_of_catalog
from logyard.operators.driver_in_cluster import DriverInCluster
from logyard.operators.fields import as_list, as_mapping, as_names
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.job_summary import JobFailed, elsewhere, summary
from logyard.operators.links import ClusterPageLink
from logyard.operators.outcome import TellsOutcome
from logyard.operators.spark_place import SparkPlace
from logyard.operators.spark_provider import SparkSubmitOperator
from logyard.operators.store_connection import settings_of_store
from logyard.operators.topic_ids import surely_same
from logyard.operators.tries import Tries

FAILED_SUMMARY = "summary"
_NAMED = 3  # findings in the reason of a failed audit
EXPORT_ALIAS = "logyard_exports"


class SparkSegmentsOperator(TellsOutcome, DriverInCluster):
    """Run one job of `spark_jobs/` on topics of a cluster and return its summary.

    The job gets the cluster from the Logyard connection (bootstrap servers, cluster file); the Spark connection only
    says where Spark runs. The job's output appears in the task's log as it comes. Jobs are idempotent: they stage their
    output and commit it atomically, so a retry does no harm.

    One Spark application works through all topics. A topic that fails does not end the others: the task fails at the
    end and names it, its outcome has the others' results, and its next try works only on what failed (before Airflow
    3.3, which keeps no state between tries, on all topics).

    :param job: the job's file in `spark_jobs/`, without `.py`.
    :param topics: topics, a list or its JSON. (templated)
    :param arguments: further arguments of the job. (templated)
    :param options: further options as a mapping or its JSON, `{"destination": "/data"}` for `--destination /data`;
        empty values are omitted. (templated)
    :param logyard_conn_id: the cluster's connection. (templated)
    :param spark_settings: settings of Spark for this job, a mapping or its JSON, beside those of
        `[logyard] spark_settings`, which every job gets, and of `conf`. (templated)

    The arguments of Airflow's SparkSubmitOperator count too (`conf`, `packages`, `driver_memory` …), with its
    templates.

    The Spark connection may name a master on this machine or elsewhere; addresses, Python and environment elsewhere are
    Spark's own (`spark_place.py`). In cluster deploy mode the summary stays in the driver's log.
    """

    tells = staticmethod(job_outcomes.of_job)
    template_fields: Sequence[str] = (
        "topics",
        "arguments",
        "options",
        "spark_settings",
        "logyard_conn_id",
        *(name for name in SparkSubmitOperator.template_fields if name not in ("application", "application_args")),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"options": "json", "spark_settings": "json"}
    operator_extra_links = (ClusterPageLink(),)
    ui_color = "#f2e6d8"

    job: str = ""

    def __init__(
        self,
        *,
        topics: Sequence[str] | str,
        job: str = "",
        arguments: Sequence[str] = (),
        options: dict[str, Any] | str | None = None,
        logyard_conn_id: str = ClusterHook.default_conn_name,
        spark_settings: dict[str, Any] | str | None = None,
        conn_id: str = "spark_default",
        name: str = "logyard",
        **kwargs: Any,
    ) -> None:
        super().__init__(conn_id=conn_id, name=name, **assets.with_outlets(type(self), kwargs))
        self.job = job or self.job
        self.topics = topics
        self.arguments = arguments
        self.options = options
        self.logyard_conn_id = logyard_conn_id
        self.spark_settings = spark_settings

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        topics = as_names("topics", self.topics)
        place = SparkPlace.of_connection(self._conn_id, self._deploy_mode)
        with tempfile.TemporaryDirectory(prefix="logyard-job-") as directory:
            output = Path(directory) / "summary.json"
            self.application = str(job_file(self.job))
            files = self.job_files(Path(directory))
            # Schemas, and the store or catalog behind a connection, may be edited between two tries as well.
            told = [f"{option} {path.read_text()}" for option, path in files.items()]
            tries = Tries(context, topics, [*self.job_arguments(topics, place), *told], self._surely_same)
            files |= self._security(Path(directory))
            words, shipped = place.shipped(files)
            self.application_args = [*self.job_arguments(tries.topics, place), *words]
            if not place.is_cluster_mode:
                self.application_args += ["--output", str(output)]
            if shipped:
                self.files = ",".join([*filter(None, [self.files]), *shipped])
            if place.is_standalone_cluster:
                self._submit_driver(place.master, self.application_args, files)
            if place.is_yarn_cluster and not getattr(self, "_yarn_track_via_rm_api", False):
                # Else the provider refuses to submit: it could not find the job again. A retry does no harm.
                self.durable = False
            given = {**(self.conf or {}), **as_mapping("spark_settings", self.spark_settings)}
            self.conf = place.settings_of_jobs() | given
            self.env_vars = {**place.environment(), **(self.env_vars or {})}
            try:
                super().execute(context)
            except (AirflowException, RuntimeError) as problem:
                self._report(context, tries, output, problem)
            if place.is_cluster_mode:
                self._forget_driver(context)
            # The provider keeps the last lines of the job's output for its error messages.
            lines = getattr(self._hook, "_last_submit_log_lines", ())
            return elsewhere(self.job, lines) if place.is_cluster_mode else tries.ended(summary(output, lines))

    def _surely_same(self, known: Mapping[str, str]) -> set[str]:
        """The topics (name → id) that are the ones that an earlier try has done."""
        return surely_same(ClusterHook(self.logyard_conn_id), known, self.log.warning)

    def _security(self, directory: Path) -> dict[str, Path]:
        """The connection's secrets in files that only this user can read: command lines are visible to others."""
        settings = ClusterHook(self.logyard_conn_id).settings
        files: dict[str, Path] = {}
        if settings.security_protocol != "PLAINTEXT" or settings.http_username or settings.ssl_certfile:
            files["--security"] = _private(directory / "security.json", settings.security())
        if settings.http_tokens:
            files["--tokens"] = _private(directory / "tokens.json", dict(settings.http_tokens))
        return files

    def job_files(self, directory: Path) -> dict[str, Path]:
        """Write what the job reads from files. Returns their paths by the job's options."""
        return {}

    def untold(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """What tries that failed have written, as the event of the one that ends well has to tell it."""
        made: Mapping[str, Any] = type(self).writes(found) if type(self).writes is not None else {}
        return made

    def _report(self, context: Context, tries: Tries, output: Path, problem: Exception) -> None:
        """Fail, and keep the summary of a failed job, if it wrote one, as an XCom."""
        if not output.is_file():
            raise self._ended_badly(self.job, problem)
        found = summary(output, ())
        found = tries.failed(found, self.untold({**found, written_topics.EARLIER: tries.untold}))
        context["ti"].xcom_push(key=FAILED_SUMMARY, value=found)
        if found.get("by_topic"):
            self.told(context, found)
        raise JobFailed(f"{self.job}: {_reason(found)} (its summary is in the XCom {FAILED_SUMMARY!r})") from problem

    def job_arguments(self, topics: Sequence[str], place: SparkPlace) -> list[str]:
        """The job's command line, without what goes by files. Raises BadSettings."""
        if not topics:
            raise BadSettings(f"{self.job}: name at least one topic")
        settings = ClusterHook(self.logyard_conn_id).settings
        command = ["--bootstrap-server", ",".join(settings.bootstrap)]
        for topic in topics:
            command += ["--topic", topic]
        if settings.cluster_file and place.is_cluster_mode:
            raise BadSettings(
                f"{self.job}: cluster_file is for one machine, and the driver runs in the cluster: name addresses and "
                "credentials in the connection"
            )
        if settings.cluster_file:
            command += ["--cluster-file", settings.cluster_file]
        return [*command, *option_words(as_mapping("options", self.options)), *self.arguments]


def option_words(options: Mapping[str, Any]) -> list[str]:
    """The words of a job's options on its command line; empty values are omitted."""
    words = []
    for key, value in options.items():
        if value is True:
            words.append(f"--{key}")
        elif value is not None and value is not False and value not in ("", "None"):  # 0 is a value
            words += [f"--{key}", str(value)]
    return words


def _reason(found: Mapping[str, Any]) -> str:
    """Return why a job failed, from its summary: the topics that failed by name, else the partitions."""
    if topics := found.get("topics_failed"):
        first, why = next(iter(topics.items()))
        said = f"{job_outcomes.failed_topics(topics)} ({first}: {why})" if len(topics) > 1 else f"{first} failed: {why}"
        return f"{said}; the audit's verdict is bad" if found.get("verdict") == "bad" else said
    if found.get("verdict") == "bad" and (findings := found.get("first_findings")):
        return f"the verdict is bad: {'; '.join(str(each.get('message')) for each in findings[:_NAMED])}"
    failed = found.get("failed")
    reasons = "; ".join(map(str, failed.values())) if isinstance(failed, dict) else ""
    return str(found.get("error") or found.get("verdict") or reasons or "see its output above")


class AuditSegmentsOperator(SparkSegmentsOperator):
    """Check the segments of every replica: CRCs, offsets, indexes, and equal records up to the high watermark."""

    job = "audit"
    lineage = staticmethod(lineages.audited)


class CompactSegmentsOperator(SparkSegmentsOperator):
    """Compact closed segments of live brokers under leases; adds an event to the asset of each topic compacted."""

    job = "compact"
    writes = staticmethod(written_topics.compacted)
    lineage = staticmethod(lineages.compacted)


class ExportSegmentsOperator(SparkSegmentsOperator):
    """Export records to a table; no record is exported twice.

    A run that exported records adds an event to the asset of its destination: rows, dead letters, files, and the
    offsets [start, end) of every partition. The outlet is `AssetAlias(EXPORT_ALIAS)`, so the destination may be a
    template.

    :param destination: the directory of the table, a path or a `file:///` URL, or a folder of an object store:
        `s3://`, `gs://`, `abfss://`. (templated)
    :param store_conn_id: the connection with an object store's credentials (`aws`, `google_cloud_platform`, `wasb`,
        `adls` or `generic`), which go by a file that only this user can read; without it Spark's machines have them.
        (templated)
    :param table_format: `parquet`, `delta` or `iceberg`; the latter two need their package in `spark.jars`. (templated)
    :param table: the table in an Iceberg catalog, with its namespace (`lake.flights`), for the `table_format`
        `iceberg`. (templated)
    :param catalog_conn_id: the catalog's connection (`iceberg` or `generic`), whose content goes by a file that only
        this user can read. (templated)
    :param mode: `append` (every record) or `upsert` (the latest record of each key). (templated)
    :param key_format: `binary`, `string` or `json`; records with other keys become dead letters. (templated)
    :param value_format: the same for values. (templated)
    :param key_schema: the columns of JSON keys in Spark's DDL, `id BIGINT NOT NULL, name STRING`. (templated)
    :param value_schema: the same for values. (templated)
    :param partition_by: `topic`, `date`, `NAME=PATTERN` of the timestamp, a list or its JSON. (templated)
    :param skip_without: skip the task, instead of failing, if topics or destination are not given.
    """

    job = "export"
    lineage = staticmethod(lineages.exported)
    _named: ClassVar[dict[str, str]] = {
        "table_format": "--format",
        "mode": "--mode",
        "key_format": "--key-format",
        "value_format": "--value-format",
        "table": "--table",
    }
    _schemas: ClassVar[tuple[str, ...]] = ("key_schema", "value_schema")
    template_fields = (
        *SparkSegmentsOperator.template_fields,
        "destination",
        "store_conn_id",
        "table",
        "catalog_conn_id",
        "table_format",
        "mode",
        "key_format",
        "value_format",
        "key_schema",
        "value_schema",
        "partition_by",
    )

    def __init__(
        self,
        *,
        topics: Sequence[str] | str,
        destination: str,
        store_conn_id: str | None = None,
        table: str | None = None,
        catalog_conn_id: str | None = None,
        table_format: str | None = None,
        mode: str | None = None,
        key_format: str | None = None,
        value_format: str | None = None,
        key_schema: str | None = None,
        value_schema: str | None = None,
        partition_by: Sequence[str] | str = (),
        skip_without: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("outlets", [AssetAlias(EXPORT_ALIAS)])
        super().__init__(topics=topics, **kwargs)
        self.destination = destination
        self.store_conn_id = store_conn_id
        self.table = table
        self.catalog_conn_id = catalog_conn_id
        self.table_format = table_format
        self.mode = mode
        self.key_format = key_format
        self.value_format = value_format
        self.key_schema = key_schema
        self.value_schema = value_schema
        self.partition_by = partition_by
        self.skip_without = skip_without

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        if self.skip_without and not (self.destination and as_list("topics", self.topics)):
            raise AirflowSkipException("no topics and destination are given, neither by the factory nor by the form")
        found = super().execute(context)
        events = context.get("outlet_events")
        if (told := written_tables.exported(found)) and events is not None:
            extra = {"logyard_conn_id": self.logyard_conn_id, **told}
            events[AssetAlias(EXPORT_ALIAS)].add(Asset(uri=asset_uri(self.destination)), extra=extra)
        return found

    def untold(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        return written_tables.exported(found)

    def job_files(self, directory: Path) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for name in self._schemas:
            if value := getattr(self, name):
                path = files[f"--{name.replace('_', '-')}"] = directory / f"{name}.ddl"
                path.write_text(str(value))
        if self.store_conn_id:
            files["--store"] = store_file(self.store_conn_id, directory)
        if self.catalog_conn_id:
            files["--catalog"] = catalog_file(self.catalog_conn_id, directory)
        return files

    def job_arguments(self, topics: Sequence[str], place: SparkPlace) -> list[str]:
        if not self.destination:
            raise BadSettings("export: name the destination")
        refuse_credentials("export", self.destination)
        if bool(self.table) != bool(self.catalog_conn_id):
            raise BadSettings("export: a table in a catalog needs both table and catalog_conn_id")
        command = [*super().job_arguments(topics, place), "--destination", self.destination]
        for name, option in self._named.items():
            if value := getattr(self, name):
                command += [option, str(value)]
        columns = as_names("partition_by", self.partition_by or [])
        return [*command, "--partition-by", ",".join(columns)] if columns else command


def refuse_credentials(job: str, destination: str) -> None:
    """Raise BadSettings where a destination has a password: it would be on the job's command line."""
    if has_login(destination):
        raise BadSettings(f"{job}: no credentials in the destination: name a connection in store_conn_id")


def store_file(conn_id: str, directory: Path) -> Path:
    """Write an object store's settings to a file of this user; raises BadSettings."""
    settings = settings_of_store(BaseHook.get_connection(conn_id))
    for secret in settings.values():
        mask_secret(secret)
    return _private(directory / "store.json", settings)


def catalog_file(conn_id: str, directory: Path) -> Path:
    """Write a catalog's properties to a file of this user; raises BadSettings."""
    catalog = settings_of_catalog(BaseHook.get_connection(conn_id))
    for secret in secrets_of(catalog):
        mask_secret(secret)
    return _private(directory / "catalog.json", catalog)


def _private(path: Path, content: Mapping[str, Any]) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file)
    return path


def asset_uri(destination: str) -> str:
    """The URI of a destination's asset: a URL as it is, a directory as a file URL."""
    return destination if "://" in destination else Path(destination).absolute().as_uri()


def job_file(job: str) -> Path:
    """The file of a job in the installed package, found without importing Spark. Raises BadSettings."""
    spec = importlib.util.find_spec("logyard.spark_jobs")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for place in places:
        path = place / f"{job}.py"
        if job.isidentifier() and path.is_file():
            return path.resolve()
    raise BadSettings(f"there is no Spark job {job!r} in {', '.join(map(str, places)) or 'logyard.spark_jobs'}")
