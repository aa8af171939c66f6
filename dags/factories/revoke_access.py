"""Take away what `grant_access` gave: exactly these ACLs, and if asked the user's limits and passwords.

What the user may do by other ACLs stays; the page shows them under a topic's *Rights*, `logyard acls list --principal
User:NAME` all of them.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.dags.factories.grant_access import ACLS, acls_of, names
from logyard.operators.access import DeleteAclsOperator, DeleteUserOperator, SetQuotasOperator


def revoke_access_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>revoke_access` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}revoke_access",
        description="Take away a user's ACLs, and if asked limits and passwords",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "access"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        user_defined_macros={"acls_of": acls_of},
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        user = DeleteUserOperator(
            task_id="user",
            user="{{ params.user }}",
            wanted="{{ params.delete_user }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        rights = DeleteAclsOperator(
            task_id="acls", acls=ACLS, dry_run="{{ params.dry_run }}", logyard_conn_id=params.cluster(logyard_conn_id)
        )
        limits = SetQuotasOperator(
            task_id="quotas",
            quotas="{{ [{'user': params.user}] | tojson }}",
            remove_others="{{ params.remove_limits }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        user >> rights >> limits
    return dag


def _form() -> dict[str, Param]:
    return {
        **names(),
        "delete_user": params.flag("Delete the user", "Remove the user's SCRAM passwords: nobody logs in as it."),
        "remove_limits": params.flag("Remove limits", "Remove the user's quotas."),
    }
