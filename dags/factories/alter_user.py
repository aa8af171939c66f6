"""Let a user log in by SCRAM, change the password, or delete the user.

The password is that of an Airflow connection, which the run names: make one under *Admin → Connections* (type
*Generic*) or in a secrets backend. No form, run, XCom, rendered field or log has the password, and brokers get it
salted and hashed. ACLs and limits of the name stay when the user is deleted.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from logyard.admin.users.users import DEFAULT_MECHANISM, SCRAM
from logyard.broker.znodes.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN
from logyard.dags.factories import params
from logyard.operators.access import DeleteUserOperator, SetUserOperator

BOTH = ",".join(SCRAM)


def alter_user_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>alter_user` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}alter_user",
        description="Let a user log in by SCRAM, change the password, or delete the user",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "access"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        common: dict[str, Any] = {
            "user": "{{ params.user }}",
            "dry_run": "{{ params.dry_run }}",
            "logyard_conn_id": params.cluster(logyard_conn_id),
        }
        set_ = SetUserOperator(
            task_id="set",
            password_conn_id="{{ params.password_connection or '' }}",
            mechanisms="{{ params.mechanisms }}",
            iterations="{{ params.iterations }}",
            change="{{ params.change_password }}",
            wanted="{{ 'true' if params.password_connection and not params.delete_user else 'false' }}",
            **common,
        )
        gone = DeleteUserOperator(task_id="delete", wanted="{{ params.delete_user }}", **common)
        set_ >> gone
    return dag


def _form() -> dict[str, Param]:
    order = (DEFAULT_MECHANISM, *(one for one in SCRAM if one != DEFAULT_MECHANISM), BOTH)
    return {
        "user": Param(type="string", minLength=1, title="User", description="The name, without User: before it."),
        "password_connection": params.text(
            "Password's connection", "The id of the Airflow connection whose password the user logs in with."
        ),
        "mechanisms": params.choice("Mechanisms", "By what the user logs in.", order),
        "iterations": Param(
            8192,
            type="integer",
            minimum=ITERATIONS_MIN,
            maximum=ITERATIONS_MAX,
            title="Iterations",
            description="Of the password's hash: more make guessing slower, and each log-in too.",
        ),
        "change_password": params.flag("Change the password", "Set it also if the user has one."),
        "delete_user": params.flag("Delete the user", "Remove the user's SCRAM passwords: nobody logs in as it."),
        "dry_run": params.flag("Dry run", "Say what would change, and change nothing."),
    }
