"""Params that several DAGs share: what a person, or a caller of the REST API, fills in."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

from logyard.admin.reassignment.disks import LIMIT_PERCENT

PREFIX = "logyard_"
CONNECTION = "logyard_default"
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


def required_topic(description: str = "The topic's name.") -> Param:
    # Without a default the form and the API require a value.
    return Param(type="string", pattern=NAME_PATTERN, title="Topic", description=description)


def topics(description: str, *, default: Sequence[str] = ()) -> Param:
    items = {"type": "string", "pattern": NAME_PATTERN}
    return Param(list(default), type="array", items=items, title="Topics", description=description)


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
    items = {"type": "integer", "minimum": 0}
    return Param([], type="array", items=items, title=title, description=description, **bounds)


def mapping(title: str, description: str, default: dict[str, Any] | None = None) -> Param:
    return Param(default or {}, type=["object", "null"], title=title, description=description)


def approval() -> Param:
    return flag("Ask a person", "Wait for a person's approval of the plan before anything is changed.", default=True)


def throttle() -> Param:
    return number("Throttle", "Bytes per second on each broker; 0: none; empty: the connection's, or none.", minimum=0)
