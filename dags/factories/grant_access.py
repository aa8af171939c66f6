"""Let a user write and read topics: a password (SCRAM), ACLs and limits, from one form.

What the form leaves empty is not touched. A run that is repeated changes nothing. The password is that of an Airflow
connection, never a field of the form.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from logyard.admin.acls import acls
from logyard.admin.acls.acls import Grant, Resource
from logyard.dags.factories import params
from logyard.operators.access import CreateAclsOperator, SetQuotasOperator, SetUserOperator

ACLS = "{{ acls_of(params) | tojson }}"


def grant_access_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>grant_access` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}grant_access",
        description="Let a user write and read topics: password, ACLs, limits",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "access"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        user_defined_macros={"acls_of": acls_of},
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        user = SetUserOperator(
            task_id="user",
            user="{{ params.user }}",
            password_conn_id="{{ params.password_connection or '' }}",
            change="{{ params.change_password }}",
            wanted="{{ 'true' if params.password_connection else 'false' }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        rights = CreateAclsOperator(
            task_id="acls", acls=ACLS, dry_run="{{ params.dry_run }}", logyard_conn_id=params.cluster(logyard_conn_id)
        )
        limits = SetQuotasOperator(
            task_id="quotas",
            quotas="{{ ([dict(params.limits, user=params.user)] if params.limits else []) | tojson }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        user >> rights >> limits
    return dag


def acls_of(form: Mapping[str, Any]) -> list[dict[str, str]]:
    """The ACLs that this form means, as the operators take them: what producers and consumers need."""
    pattern = acls.PREFIXED if form["prefixed"] else acls.LITERAL
    grant = Grant(allow=(f"User:{form['user']}",))

    def named(kind: str, field: str) -> list[Resource]:
        # The name * stands for all in a literal pattern only.
        names = [str(name) for name in form[field] or ()]
        return [Resource(kind, name, acls.LITERAL if name == acls.WILDCARD else pattern) for name in names]

    produced = [*named(acls.TOPIC, "writes"), *named(acls.TRANSACTIONAL_ID, "transactional_ids")]
    found = [acl for one in produced for acl in grant.on(one, acls.PRODUCER[one.type])]
    consumed = [*named(acls.TOPIC, "reads"), *named(acls.GROUP, "groups")]
    found += [acl for one in consumed for acl in grant.on(one, acls.CONSUMER[one.type])]
    return [acls.as_json(one) for one in dict.fromkeys(found)]


def names() -> dict[str, Param]:
    """Who, and on what: the fields that granting and revoking share."""
    return {
        "user": Param(type="string", minLength=1, title="User", description="The name, without User: before it."),
        "writes": params.texts("Writes", "Topics that the user writes, and may create; * is every topic."),
        "reads": params.texts("Reads", "Topics that the user reads."),
        "groups": params.texts("Groups", "Consumer groups in which the user reads."),
        "transactional_ids": params.texts("Transactional ids", "Ids of the user's transactional producers."),
        "prefixed": params.flag("Prefixes", "These names are prefixes: orders. is for orders.created too."),
        "dry_run": params.flag("Dry run", "Say what would change, and change nothing."),
    }


def _form() -> dict[str, Param]:
    return {
        **names(),
        "password_connection": params.text(
            "Password's connection",
            "The Airflow connection whose password the user logs in with, by SCRAM-SHA-512. Empty: the user is there "
            "already, or logs in by a certificate or a token.",
        ),
        "change_password": params.flag("Change the password", "Set it also if the user has one."),
        "limits": params.mapping(
            "Limits", 'The user\'s quotas, such as {"producer_byte_rate": 10485760}, in bytes per second.'
        ),
    }
