"""Params that several DAGs share: what a person, or a caller of the REST API, fills in."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

from logyard.admin.reassignment.disks import LIMIT_PERCENT
from logyard.operators.airflow_names import conf
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.operators.links import docs_address, page_address

PREFIX = "logyard_"
CONNECTION = "logyard_default"
# The field of a form that chooses among connections (plugins/logyard_ui/access/actions.py reads it).
CHOSEN = "logyard_conn_id"
OTHER = "to_cluster"
SPARK_CONNECTION = "spark_default"
TAGS = ("logyard",)
OWNER = "logyard"

# The result of the task `plan`, for the tasks after it.
PLAN = "{{ ti.xcom_pull(task_ids='plan') | tojson }}"

# What a mapped task on several topics is called (Airflow takes 250 characters).
TOPICS_OF_TASK = (
    "{{ task.topics[0] }}{% if task.topics | length > 1 %} and {{ task.topics | length - 1 }} more{% endif %}"
)


NAME_PATTERN = "^[a-zA-Z0-9._-]{1,249}$"


def docs(text: str | None, logyard_conn_id: str) -> str:
    """A DAG's documentation, with the way to dialogs that suggest what is there.

    Airflow's own form takes its suggestions from the DAG's file, which is parsed every 30 s and asks no broker.
    """
    page, published = page_address(logyard_conn_id), docs_address()
    more = f" More is in [Logyard's docs]({published})." if published else ""
    where = f"The cluster is on [Logyard's page]({page}), whose dialogs suggest topics, brokers and groups."
    return f"{text}\n\n{where}{more}\n"


def clusters(logyard_conn_id: str) -> dict[str, Param]:
    """The field in which a person chooses the cluster, where `[logyard] dag_connections` names this DAG's connection
    and others: Airflow refuses a run with any other one."""
    allowed = _served(logyard_conn_id)
    if not allowed:
        return {}
    text = "The connection of the cluster that the run works on."
    return {CHOSEN: Param(logyard_conn_id, type="string", enum=allowed, title="Cluster", description=text)}


def cluster(logyard_conn_id: str) -> str:
    """The connection for tasks: what was chosen in the form, where it has the field."""
    return f"{{{{ params.{CHOSEN} }}}}" if _served(logyard_conn_id) else logyard_conn_id


def other_cluster(logyard_conn_id: str) -> dict[str, Param]:
    """The field in which a person may choose another of these clusters, to write to."""
    allowed = _served(logyard_conn_id)
    if not allowed:
        return {}
    text = "The connection of the cluster that is written to; empty: the same."
    return {OTHER: Param(None, type=["null", "string"], enum=[None, *allowed], title="Into cluster", description=text)}


def other(logyard_conn_id: str) -> str | None:
    """That connection for tasks; None where the form has no such field."""
    return f"{{{{ params.{OTHER} or '' }}}}" if _served(logyard_conn_id) else None


def catalog(default: str | None) -> Param:
    """The connection of an Iceberg catalog: one of `[logyard] catalog_connections`, where that names any."""
    allowed = _configured("catalog_connections")
    if not allowed:
        return text("Catalog", "The catalog's connection.", default=default)
    named = list(dict.fromkeys([None, default, *allowed]))
    return Param(default, type=["null", "string"], enum=named, title="Catalog", description="The catalog's connection.")


def _configured(option: str) -> list[str]:
    named = (conf.get(CONFIG_SECTION, option, fallback="") or "").split(",")
    return list(dict.fromkeys(name.strip() for name in named if name.strip()))


def _served(logyard_conn_id: str) -> list[str]:
    found = _configured("dag_connections")
    return found if logyard_conn_id in found and len(found) > 1 else []


def required_topic(description: str = "The topic's name.") -> Param:
    # Without a default the form and the API require a value.
    return Param(type="string", pattern=NAME_PATTERN, title="Topic", description=description)


def topics(description: str, *, default: Sequence[str] | str = ()) -> Param:
    items = {"type": "string", "pattern": NAME_PATTERN}
    named = [default] if isinstance(default, str) else list(default)
    return Param(named, type="array", items=items, title="Topics", description=description)


def number(title: str, description: str, *, default: int | None = None, minimum: int | None = None) -> Param:
    bounds: dict[str, Any] = {} if minimum is None else {"minimum": minimum}
    return Param(default, type=["null", "integer"], title=title, description=description, **bounds)


def disks() -> dict[str, Param]:
    """The sizes of the brokers' disks, and how full they may get."""
    return {
        "disk_capacities": mapping(
            "Disk capacities",
            'Bytes of the brokers\' disks, such as {"1": 2000000000000}, for all brokers: then the filled share of '
            "the disks is balanced, and no disk is filled above the limit. Empty: the connection's, or none.",
        ),
        "disk_limit": Param(
            LIMIT_PERCENT,
            type="integer",
            minimum=1,
            maximum=100,
            title="Disk limit",
            description="Refuse a plan that would fill a disk above this percentage while replicas move.",
        ),
    }


def max_topics_a_job(default: int) -> Param:
    return Param(
        default,
        type="integer",
        minimum=1,
        title="Topics a job",
        description="The most topics that one Spark job works through. A job pays Spark's start once.",
    )


def text(title: str, description: str, *, default: str | None = None) -> Param:
    return Param(default, type=["null", "string"], title=title, description=description)


def texts(title: str, description: str) -> Param:
    return Param([], type="array", items={"type": "string"}, title=title, description=description)


def choice(title: str, description: str, allowed: Sequence[str]) -> Param:
    return Param(allowed[0], type="string", enum=list(allowed), title=title, description=description)


def flag(title: str, description: str, *, default: bool = False) -> Param:
    return Param(default, type="boolean", title=title, description=description)


def brokers(title: str, description: str, *, required: bool = False) -> Param:
    bounds: dict[str, Any] = {"minItems": 1} if required else {}
    # Without a "type" of the items, Airflow's form shows lines of text; with "integer" it would show raw JSON. What is
    # typed there is text, and callers of the REST API send numbers.
    items = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,10}$"}]}
    text = f"{description} One id a line."
    return Param([], type="array", items=items, title=title, description=text, **bounds)


def mapping(title: str, description: str, default: dict[str, Any] | None = None) -> Param:
    return Param(default or {}, type=["object", "null"], title=title, description=description)


def approval() -> Param:
    return flag("Ask a person", "Wait for a person's approval of the plan before anything is changed.", default=True)


def throttle() -> Param:
    return number("Throttle", "Bytes per second on each broker; 0: none; empty: the connection's, or none.", minimum=0)
