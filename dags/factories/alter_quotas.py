"""Set and remove the limits of a user, a client, both, or an address. Limits that the form does not name stay.

An empty name is the default of its kind: what holds for all users, clients or addresses without limits of their own. A
name of another kind than the limit's is refused.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from logyard.admin.quotas.quotas import KEYS
from logyard.dags.factories import params
from logyard.operators.access import SetQuotasOperator
from logyard.operators.failures import TaskRefused

# What has limits: the fields with its names.
ENTITIES: Mapping[str, tuple[str, ...]] = {
    "user": ("user",),
    "client": ("client",),
    "user and client": ("user", "client"),
    "ip": ("ip",),
}


def alter_quotas_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>alter_quotas` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}alter_quotas",
        description="Set and remove the limits of a user, a client or an address",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "access"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        user_defined_macros={"quota_of": quota_of},
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        SetQuotasOperator(
            task_id="quotas",
            quotas="{{ [quota_of(params)] | tojson }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag


def quota_of(form: Mapping[str, Any]) -> dict[str, Any]:
    """The quota that this form means, as the operator takes it. Raises TaskRefused for a name of another kind."""
    kinds = ENTITIES[form["of"]]
    strange = [name for names in ENTITIES.values() for name in names if name not in kinds and form[name]]
    if strange:
        raise TaskRefused(f"{strange[0]} {form[strange[0]]!r} does not go with a limit of: {form['of']}")
    return {**(form["limits"] or {}), **{name: form[name] or "" for name in kinds}}


def _form() -> dict[str, Param]:
    limit = {"type": ["number", "null"], "exclusiveMinimum": 0}
    return {
        "of": params.choice("Of", "What is limited.", tuple(ENTITIES)),
        "user": params.text("User", "The name, without User: before it; empty: all users without limits of their own."),
        "client": params.text("Client", "The client id; empty: all clients without limits of their own."),
        "ip": params.text("Address", "The IP address; empty: all addresses without limits of their own."),
        "limits": Param(
            {},
            type="object",
            propertyNames={"enum": list(KEYS)},
            additionalProperties=limit,
            title="Limits",
            description='Such as {"producer_byte_rate": 10485760, "request_percentage": null}: bytes a second, '
            "percent of a thread, and what null removes.",
        ),
        "dry_run": params.flag("Dry run", "Say what would change, and change nothing."),
    }
