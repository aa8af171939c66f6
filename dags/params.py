"""Params that several DAGs share: what a person (or a caller of the REST API) fills in."""

from typing import Any

from airflow.sdk import Param

CONNECTION = "logyard_default"
SPARK_CONNECTION = "spark_default"
TAGS = ("logyard",)
OWNER = "logyard"

NAME_PATTERN = "^[a-zA-Z0-9._-]{1,249}$"


def required_topic(description: str = "The topic's name.") -> Param:
    # Without a default the form (and the API) insist on a value.
    return Param(type="string", pattern=NAME_PATTERN, title="Topic", description=description)


def topics(description: str) -> Param:
    return Param(
        [], type="array", items={"type": "string", "pattern": NAME_PATTERN}, title="Topics", description=description
    )


def number(title: str, description: str, *, default: int | None = None, minimum: int | None = None) -> Param:
    bounds: dict[str, Any] = {} if minimum is None else {"minimum": minimum}
    return Param(default, type=["null", "integer"], title=title, description=description, **bounds)


def mapping(title: str, description: str, default: dict[str, Any] | None = None) -> Param:
    return Param(default or {}, type=["object", "null"], title=title, description=description)
