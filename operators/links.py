"""Links from a task to Logyard's page in Airflow's UI."""

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

# Where the plugin's React view lives (plugins/logyard_ui/plugin.py declares it).
PAGE = "/plugin/logyard"
XCOM_KEY = "logyard_page"


def page_address(logyard_conn_id: str, topic: str | None = None) -> str:
    """The page on that cluster (and topic)."""
    query = {"conn_id": logyard_conn_id} | ({"topic": topic} if topic else {})
    return f"{PAGE}?{urlencode(query)}"


class ClusterPageLink(BaseOperatorLink):
    """Opens what a task touched; Airflow asks for it when the task ends, its fields rendered, and keeps the answer."""

    name = "Logyard"

    @property
    def xcom_key(self) -> str:
        return XCOM_KEY

    def get_link(self, operator: "BaseOperator", *, ti_key: Any) -> str:
        """The page on the task's cluster, and on its topic where it has exactly one."""
        topics = _texts(getattr(operator, "topic", None)) or _texts(getattr(operator, "topics", None))
        conn_id = str(getattr(operator, "logyard_conn_id", ""))
        return page_address(conn_id, topics[0] if len(topics) == 1 else None)


def _texts(value: Any) -> list[str]:
    """The names in a field: a list, the JSON of one, or one name."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    return [value] if isinstance(value, str) and value else [str(item) for item in value or ()]
