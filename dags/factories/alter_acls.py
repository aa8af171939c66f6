"""Add and remove ACLs, each as it is given: for what `grant_access` and `revoke_access` do not make, such as denials.

First all new ones are added, then the others removed; what is there already, or gone already, is left alone.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.operators.access import CreateAclsOperator, DeleteAclsOperator

_RESOURCES = ("topic", "group", "transactional_id", "delegation_token", "user", "cluster")
_KEYS = (*_RESOURCES, "pattern", "principal", "operation", "host", "permission")


def alter_acls_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>alter_acls` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}alter_acls",
        description="Add and remove ACLs",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "access"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        common: dict[str, Any] = {
            "dry_run": "{{ params.dry_run }}",
            "logyard_conn_id": params.cluster(logyard_conn_id),
        }
        added = CreateAclsOperator(task_id="add", acls="{{ params.add | tojson }}", **common)
        removed = DeleteAclsOperator(task_id="remove", acls="{{ params.remove | tojson }}", **common)
        added >> removed
    return dag


def _form() -> dict[str, Param]:
    example = '{"topic": "orders", "principal": "User:billing", "operation": "Read", "permission": "deny"}'
    return {
        "add": _acls("Add", f"ACLs to add, such as {example}."),
        "remove": _acls("Remove", "ACLs to remove: exactly these, in the same notation."),
        "dry_run": params.flag("Dry run", "Say what would change, and change nothing."),
    }


def _acls(title: str, description: str) -> Param:
    items = {"type": "object", "required": ["principal", "operation"], "propertyNames": {"enum": list(_KEYS)}}
    return Param([], type="array", items=items, maxItems=500, title=title, description=description)
