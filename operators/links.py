"""Links from a task to Logyard's page in Airflow's UI, with the topics, brokers and groups of the task."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.sdk import BaseOperatorLink

from logyard.operators.airflow_names import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

# The path of the plugin's React view (declared in plugins/logyard_ui/plugin.py).
PAGE = "/plugin/logyard"
XCOM_KEY = "logyard_page"
# Addresses have a length limit; the result of a task names everything that it changed.
NAMED_MAX = 20


def page_address(
    logyard_conn_id: str,
    topics: Iterable[str] = (),
    *,
    brokers: Iterable[str] = (),
    groups: Iterable[str] = (),
) -> str:
    """The page's address for that cluster, with these topics, brokers and groups: NAMED_MAX of each at most."""
    query = [("conn_id", logyard_conn_id)]
    for name, values in (("topic", topics), ("broker", brokers), ("group", groups)):
        query += [(name, value) for value in list(dict.fromkeys(values))[:NAMED_MAX]]
    return f"{PAGE}?{urlencode(query)}"


def docs_address() -> str:
    """Where a house has published Logyard's docs: `[logyard] docs_url`, if it is an address of the web; else empty."""
    given = (conf.get("logyard", "docs_url", fallback="") or "").strip()
    return given if given.startswith(("https://", "http://")) else ""


class ClusterPageLink(BaseOperatorLink):
    """Opens what a task worked on. Airflow asks for it when the task ends, with rendered fields, and stores it."""

    name = "Logyard"

    @property
    def xcom_key(self) -> str:
        return XCOM_KEY

    def get_link(self, operator: "BaseOperator", *, ti_key: Any) -> str:
        """The page on the task's cluster with what its fields name: topics (also those of a plan), brokers, groups."""

        def named(*fields: str) -> list[str]:
            return [text for field in fields for text in _texts(getattr(operator, field, None))]

        conn_id = str(getattr(operator, "logyard_conn_id", ""))
        planned = _planned(getattr(operator, "plan", None))
        one = str(getattr(operator, "broker", ""))  # "default" names none
        brokers = [*named("brokers", "drain"), *([one] if one.isdecimal() else [])]
        return page_address(conn_id, [*named("topic", "topics"), *planned], brokers=brokers, groups=named("group"))


def _texts(value: Any) -> list[str]:
    """The names in a field: a list, its JSON, or one name; none if it rendered to nothing."""
    if isinstance(value, str):
        if value in ("", "None", "null"):
            return []
        if not value.startswith("["):
            return [value]
    found = _parsed(value)
    return [str(item) for item in found] if isinstance(found, (list, tuple)) else []


def _planned(plan: Any) -> list[str]:
    """The topics of a plan document, or of its JSON."""
    found = _parsed(plan)
    moves = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(moves, list):
        return []
    return sorted({str(move["topic"]) for move in moves if isinstance(move, dict) and "topic" in move})


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None
