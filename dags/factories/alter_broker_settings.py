"""Change settings of one broker, or of all brokers, while they run: what Kafka calls dynamic settings.

Brokers refuse what only their own file can set. A setting that holds a secret is refused before the run begins, since
Airflow would keep it: set it by `logyard configs` or `kafka-configs`.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.admin.configs.secrets import PATTERN
from logyard.dags.factories import params
from logyard.operators.brokers import ALL, AlterBrokerSettingsOperator


def alter_broker_settings_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>alter_broker_settings` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}alter_broker_settings",
        description="Change settings of one broker, or of all brokers",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "brokers"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        AlterBrokerSettingsOperator(
            task_id="alter",
            broker="{{ params.broker }}",
            settings="{{ params.settings | tojson }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag


def _form() -> dict[str, Param]:
    return {
        "broker": Param(
            type=["integer", "string"],
            pattern=f"^([0-9]{{1,10}}|{ALL})$",
            minimum=0,
            title="Broker",
            description=f"Its id, or {ALL}: for all brokers that have no value of their own.",
        ),
        "settings": Param(
            {},
            type="object",
            propertyNames={"not": {"pattern": PATTERN}},
            additionalProperties={"type": ["string", "number", "boolean", "null"]},
            title="Settings",
            description='Such as {"log.retention.ms": 3600000, "num.io.threads": null}: null unsets. No secrets.',
        ),
        "dry_run": params.flag("Dry run", "Ask the brokers whether they would take it, and change nothing."),
    }
