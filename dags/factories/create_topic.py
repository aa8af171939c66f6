"""Create a topic and wait until every partition has a leader."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.operators.sensors.cluster import TopicReadySensor
from logyard.operators.topics import CreateTopicOperator


def create_topic_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>create_topic` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}create_topic",
        description="Create a topic and wait until every partition has a leader",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "topics"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "topic": params.required_topic(),
            "partitions": params.number("Partitions", "Empty: the broker's default.", minimum=1),
            "replication_factor": params.number("Replication factor", "Empty: the broker's default.", minimum=1),
            "configs": params.mapping("Settings", 'Settings of the topic, such as {"cleanup.policy": "compact"}.'),
            "if_exists": Param(
                "reconcile",
                enum=["fail", "skip", "reconcile"],
                title="If it exists",
                description="reconcile: set what differs, add partitions; fail where something cannot be made equal.",
            ),
        },
    ) as dag:
        create = CreateTopicOperator(
            task_id="create",
            topic="{{ params.topic }}",
            partitions="{{ params.partitions }}",
            replication_factor="{{ params.replication_factor }}",
            configs="{{ params.configs | tojson }}",
            if_exists="{{ params.if_exists }}",
            wait_for_leaders=False,
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        ready = TopicReadySensor(
            task_id="ready",
            topic="{{ params.topic }}",
            partitions="{{ params.partitions }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
            poke_interval=0.5,
            timeout=300,
        )
        create >> ready
    return dag
