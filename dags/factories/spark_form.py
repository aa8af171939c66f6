"""What a run may say of its Spark job: sizes of Spark, and those options of the job that name no file and no address.

Who may start a DAG is often somebody who may not see Airflow's connections. Other settings of Spark load code
(`spark.jars`, `spark.driver.extraJavaOptions`) onto the worker, which can read all of them; other options lead the job,
with the connection's log-in, to other brokers, or to files of the worker. Those belong into `[logyard] spark_settings`,
or into a DAG.
"""

from collections.abc import Sequence

from airflow.sdk import Param

_SIZES = (
    r"^spark\.("
    r"executor\.(memory|memoryOverhead|cores|instances)"
    r"|driver\.(memory|memoryOverhead|cores|maxResultSize)"
    r"|cores\.max|default\.parallelism|task\.(cpus|maxFailures)|sql\.shuffle\.partitions"
    r"|dynamicAllocation\.(enabled|minExecutors|maxExecutors|initialExecutors)"
    r"|speculation|network\.timeout|log\.level|yarn\.queue"
    r")$"
)
# Of texts: no path, no address, nothing that begins like an option.
_VALUE = {"type": ["string", "number", "boolean", "null"], "pattern": r"^([A-Za-z0-9_][A-Za-z0-9_.,-]*)?$"}

AUDIT = ("shallow", "quarantine", "re-replicate", "lease-ttl-s")
COMPACTION = ("force", "wait-s", "task-memory", "max-keys", "lease-ttl-s")
EXPORT = (
    *("columns", "isolation", "split-mib", "commit-mib", "target-file-mib", "merge-files", "bucket-mib"),
    *("allow-data-loss", "accept-new-topic", "lease-ttl-s"),
)


def sizes() -> Param:
    """Settings of Spark, for the operator's `spark_settings`."""
    return Param(
        {},
        type=["object", "null"],
        propertyNames={"pattern": _SIZES},
        additionalProperties=_VALUE,
        title="Spark settings",
        description='How much of Spark this run gets, such as {"spark.executor.memory": "4g"}. Other settings are for '
        "[logyard] spark_settings.",
    )


def options(allowed: Sequence[str]) -> Param:
    """Options of the job, for the operator's `options`."""
    return Param(
        {},
        type=["object", "null"],
        propertyNames={"enum": list(allowed)},
        additionalProperties=_VALUE,
        title="Options",
        description=f"Further options of the job: {', '.join(allowed)}.",
    )
