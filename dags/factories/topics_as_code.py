"""Make topics match a YAML file: plan the changes, let a person approve them, apply the approved ones.

The file is in the folder of the DAG's file (or in `[logyard] topics_directory`):

    version: 1
    owns: "orders\\\\..*"
    defaults: {partitions: 6, replication_factor: 3}
    topics:
      orders.created: {}
      orders.current: {configs: {cleanup.policy: compact}}

Settings that the file does not name are not changed, and neither are topics that it does not list, unless you ask for
their deletion.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.dags.factories.schedules import in_timezone
from logyard.dags.factories.tasks import approve_plan
from logyard.operators.catalog import ApplyTopicsOperator, PlanTopicsOperator


def topics_as_code_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    directory: Path | str | None = None,
    schedule: str | None = None,
    timezone: str | None = None,
) -> DAG:
    """The DAG `<prefix>topics_as_code` on the cluster of that connection.

    :param directory: the folder of the files; `[logyard] topics_directory` takes precedence.
    :param timezone: the time zone of the schedule, such as `Europe/Berlin`; Airflow's default where it is None.
    """
    with DAG(
        dag_id=f"{prefix}topics_as_code",
        description="Reconcile topics with a YAML file: plan, approve, apply",
        schedule=in_timezone(schedule, timezone),
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "topics"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=26),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "file": Param(
                "topics.yaml",
                type="string",
                pattern=r"^[A-Za-z0-9._/-]+\.ya?ml$",
                title="File",
                description="The YAML file, in the DAG's folder or in the configured one.",
            ),
            "delete_unlisted": params.flag(
                "Delete unlisted", "Delete topics that the file owns and does not list, with their records."
            ),
            "deletes_max": params.number(
                "Deletions at most", "Refuse to delete more topics than this.", default=5, minimum=0
            ),
            "approve": params.approval(),
        },
    ) as dag:
        common: dict[str, Any] = {
            "file": "{{ params.file }}",
            "delete_unlisted": "{{ params.delete_unlisted }}",
            "deletes_max": "{{ params.deletes_max }}",
            "directory": str(directory) if directory else None,
            "logyard_conn_id": params.cluster(logyard_conn_id),
        }
        plan = PlanTopicsOperator(task_id="plan", **common)
        approve = approve_plan("Change topics as {{ params.file }} says?")
        apply = ApplyTopicsOperator(task_id="apply", plan=params.PLAN, **common)
        plan >> approve >> apply
    return dag
