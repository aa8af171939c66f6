"""Write one record to a topic, to try what reads it.

The run waits until all in-sync replicas have the record, and tells its partition and offset. What is typed here stays
in Airflow as the run's configuration: everybody who may see the run can read it.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.operators.producing import ProduceToTopicOperator

LONGEST = 100_000

# Only the flag makes a null value: Airflow's form gives null too for a field whose text was deleted.
_RECORD = (
    "{{ [{'key': params.key or none, 'value': none if params.tombstone else params.value or '', "
    "'headers': params.headers or {}, 'partition': params.partition}] | tojson }}"
)


def send_record_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>send_record` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}send_record",
        description="Write one record to a topic",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "records"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "topic": params.required_topic("The topic, which exists."),
            "key": Param(
                None,
                type=["null", "string"],
                maxLength=LONGEST,
                title="Key",
                description="Text, written as UTF-8; empty: the record has no key.",
            ),
            "value": Param(
                "",
                type=["null", "string"],
                maxLength=LONGEST,
                title="Value",
                description="Text, written as UTF-8 as it is; JSON is not made shorter.",
            ),
            "tombstone": params.flag("Tombstone", "Write a null value: in a compacted topic it deletes the key."),
            "headers": params.mapping("Headers", 'Names and texts, such as {"source": "test"}.'),
            "partition": params.number("Partition", "Empty: the key decides, or chance without a key.", minimum=0),
            "dry_run": params.flag("Dry run", "Check that the topic is there, and write nothing."),
        },
    ) as dag:
        # Without retries: the next try would write the record again if only the answer was lost.
        ProduceToTopicOperator(
            task_id="send",
            topic="{{ params.topic }}",
            records=_RECORD,
            dry_run="{{ params.dry_run }}",
            wait_timeout_s=60,
            retries=0,
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag
