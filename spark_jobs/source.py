"""`spark.read.format("logyard")` and `spark.readStream.format("logyard")`: records of segments as a DataFrame, from a
live cluster under leases or from a directory. `df.write` and `df.writeStream` of the same format: rows into a topic,
exactly once (sink/).

    from logyard.spark_jobs import source
    source.register(spark)
    spark.read.format("logyard").option("subscribe", "flights").option("clusterFile", "…/cluster.json").load()
    spark.read.format("logyard").option("subscribe", "flights").load("/data/1")
    df.write.format("logyard").mode("append").option("topic", "flights").option("clusterFile", "…/cluster.json").save()

Options: data_source/options.py and sink/options.py. Columns have the names and types of Spark's Kafka source where it
has them; a narrower `.schema("offset long, key binary")`, or the option `columns`, reads only those. Filters on topic,
partition, offset and timestamp skip what they exclude by the indexes, before a record is read.

Spark plans a read in a process that ends after planning. So the driver keeps the plan's leases alive
(leases/keeper.py), and a task whose lease is gone takes another (data_source/split_reader.py).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark

from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.keeper import keeper_of

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader

    from logyard.spark_jobs.data_source.batch import LogyardReader, PushingReader
    from logyard.spark_jobs.data_source.rows import SCHEMA, known_columns
except ImportError as _problem:
    if not (_problem.name or "").startswith("pyspark"):
        raise
    raise ImportError(f"the data source needs PySpark 4.0 or later, and this is {pyspark.__version__}") from None

if TYPE_CHECKING:
    from logyard.spark_jobs.data_source.stream import LogyardStreamReader
    from logyard.spark_jobs.sink.writers import LogyardStreamWriter, LogyardWriter

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: Any) -> None:
    """Register the format in a session, with filters pushed down where PySpark can: since 4.1, and Spark refuses them
    unless that is enabled first."""
    kind = LogyardDataSource
    if hasattr(DataSourceReader, "pushFilters"):
        spark.conf.set(PUSH_DOWN, "true")
        kind = PushingDataSource
    keeper = keeper_of(spark)
    # A class of its own, which Spark ships by value: so the process that plans knows the keeper's mailbox.
    known = {"mailbox": keeper.directory if keeper is not None else ""}
    spark.dataSource.register(type(kind.__name__, (kind,), known))


class LogyardDataSource(DataSource):  # type: ignore[misc]  # pyspark has no types here
    """The source for sessions in which filters may not be pushed down; Spark calls its methods.

    `mailbox`: the directory where the driver's keeper takes over leases; "" if there is none.
    """

    mailbox = ""

    @classmethod
    def name(cls) -> str:
        return "logyard"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        asked = {key.lower(): value for key, value in self.options.items()}.get("columns")
        names = known_columns([c.strip() for c in asked.split(",")]) if asked else SCHEMA.names
        return from_arrow_schema(pa.schema([SCHEMA.field(name) for name in names]))

    def reader(self, schema: Any) -> LogyardReader:
        return LogyardReader(list(schema.fieldNames()), dict(self.options), self.mailbox)

    def streamReader(self, schema: Any) -> "LogyardStreamReader":
        made = _of_newer("data_source.stream", "LogyardStreamReader", "spark.readStream of this format", "4.2")
        return made(list(schema.fieldNames()), dict(self.options))  # type: ignore[no-any-return]  # chosen by name

    def writer(self, schema: Any, overwrite: bool) -> "LogyardWriter":
        made = _of_newer("sink.writers", "LogyardWriter", "df.write to this format", "4.1")
        return made(schema, overwrite, dict(self.options))  # type: ignore[no-any-return]  # chosen by name

    def streamWriter(self, schema: Any, overwrite: bool) -> "LogyardStreamWriter":
        made = _of_newer("sink.writers", "LogyardStreamWriter", "df.writeStream to this format", "4.1")
        return made(schema, overwrite, dict(self.options))  # type: ignore[no-any-return]  # chosen by name


def _of_newer(module: str, name: str, what: str, version: str) -> Any:
    """Return a class that needs what this version of PySpark brought. Raises JobFailed with the versions."""
    try:
        return getattr(import_module(f"logyard.spark_jobs.{module}"), name)
    except ImportError as problem:
        if not (problem.name or "").startswith("pyspark"):
            raise
        raise JobFailed(f"{what} needs PySpark {version}, and this is {pyspark.__version__}") from None


class PushingDataSource(LogyardDataSource):
    """The source that `register` registers."""

    def reader(self, schema: Any) -> PushingReader:
        return PushingReader(list(schema.fieldNames()), dict(self.options), self.mailbox)
