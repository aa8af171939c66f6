"""Copy records of one topic into another: those between two places, or the newest, or those that contain a text. Keys,
values, headers and times are kept. With `[logyard] dag_connections` the other topic may be on another cluster of them.

Both topics exist, and are not the same. What is written during the run is not copied. Where fields of the topic are
hidden on Logyard's page, the other topic must have such a rule too, else the run is refused: who may start this DAG
could read them there. It is refused too where the page shows the other cluster's records to everybody, and this one's
not.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.operators.copying import CopyRecordsOperator
from logyard.operators.selecting import LIMIT_MAX

_TIME = r"\d{4}-\d{2}-\d{2}([T ][0-9:.,]+(Z|[+-][0-9:]+)?)?"


def copy_records_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>copy_records` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}copy_records",
        description="Copy records of one topic into another",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "records"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=2),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | params.other_cluster(logyard_conn_id) | _form(),
    ) as dag:
        CopyRecordsOperator(
            task_id="copy",
            topic="{{ params.topic }}",
            to_topic="{{ params.to_topic }}",
            to_logyard_conn_id=params.other(logyard_conn_id),
            partitions="{{ params.partitions | tojson }}",
            start="{{ params.start }}",
            end="{{ params.end }}",
            limit="{{ params.limit }}",
            key="{{ params.key or '' }}",
            text="{{ params.text or '' }}",
            keep_partitions="{{ params.keep_partitions }}",
            transactional="{{ params.transactional }}",
            dry_run="{{ params.dry_run }}",
            # Without retries: without a transaction the next try would write everything again.
            retries=0,
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag


def _form() -> dict[str, Param]:
    return {
        "topic": params.required_topic("The topic to read."),
        "to_topic": Param(
            type="string", pattern=params.NAME_PATTERN, title="Into topic", description="Another topic, which exists."
        ),
        "partitions": Param(
            [],
            type="array",
            items={"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,7}$"}]},
            title="Partitions",
            description="Of the topic to read, one number a line; empty: all.",
        ),
        "start": Param(
            "earliest",
            type="string",
            pattern=rf"^(earliest|newest|\d{{1,18}}|{_TIME})$",
            title="From",
            description="earliest, an offset, or the first record at a time or later (UTC where no zone is given); "
            "newest: the newest records, as many as the limit says.",
            examples=["earliest", "newest", "2026-01-31T12:00:00Z"],
        ),
        "end": Param(
            "latest",
            type="string",
            pattern=rf"^(latest|\d{{1,18}}|{_TIME})$",
            title="Up to",
            description="latest: what is there now; an offset or a time: the records before it.",
            examples=["latest", "2026-01-31T12:00:00Z"],
        ),
        "limit": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=LIMIT_MAX,
            title="At most",
            description="So many records; empty: all of them.",
        ),
        "key": params.text("Key contains", "Only records whose key contains it; small and capital letters are alike."),
        "text": params.text("Text contains", "Only records whose key, value or a header contains it."),
        "keep_partitions": params.flag("Same partitions", "Partition 3 goes to partition 3; else keys decide."),
        "transactional": params.flag(
            "One transaction",
            "All of them or none, for readers with read_committed; it may last 10 minutes.",
            default=True,
        ),
        "dry_run": params.flag("Dry run", "Count the records that would be copied, and copy none."),
    }
