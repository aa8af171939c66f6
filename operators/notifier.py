"""A record when a task or a DAG run ends: for `on_failure_callback`, `on_success_callback` and their like."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from logyard.operators.airflow_names import BaseNotifier, redact
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.hooks.records import RecordsHook, asked
from logyard.operators.producing import as_record
from logyard.operators.writing import Delivered

_TEXT_MAX = 2000
_CLOSE_S = 1.0


class TopicNotifier(BaseNotifier):
    """Write one record about the task or the DAG run to a topic that exists.

        on_failure_callback=[TopicNotifier(topic="airflow.events")]

    :param topic: the topic. (templated)
    :param value: the record's value: text, or what becomes JSON. None: `dag_id`, `run_id`, `task_id`, `map_index`,
        `try_number`, `state`, `logical_date` and `exception`, as far as the context has them, with what Airflow masks
        in its logs masked here too. (templated)
    :param key: its key; None: the DAG's id. (templated)
    :param headers: names and values. (templated)
    :param logyard_conn_id: the connection. (templated)
    :param timeout_s: for how many seconds it is tried.
    """

    template_fields: Sequence[str] = ("topic", "value", "key", "headers", "logyard_conn_id")

    def __init__(
        self,
        *,
        topic: str,
        value: Any = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        logyard_conn_id: str = ClusterHook.default_conn_name,
        timeout_s: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.logyard_conn_id = logyard_conn_id
        self.timeout_s = timeout_s

    def notify(self, context: Context) -> None:
        """Raises ApiError, RecordsFailed, BadSettings; Airflow logs it, and the task's state does not change."""
        told = about(context) if self.value is None else self.value
        key = self.key if self.key is not None else about(context).get("dag_id")
        options = {"message.timeout.ms": round(self.timeout_s * 1000)}
        hook = RecordsHook(self.logyard_conn_id)
        hook.require_topic(self.topic, self.timeout_s)
        producer = hook.producer(options)
        delivered = Delivered(self.topic)
        record = as_record({"key": key, "value": told, "headers": self.headers})
        asked(f"topic {self.topic}", producer.produce, self.topic, on_delivery=delivered.add, **record)
        producer.flush(self.timeout_s + _CLOSE_S)
        delivered.check_all(1)

    async def async_notify(self, context: Context) -> None:
        await asyncio.to_thread(self.notify, context)


def about(context: Mapping[str, Any]) -> dict[str, Any]:
    """What the context tells of the task and its run, as JSON has it."""
    ti, run = context.get("ti") or context.get("task_instance"), context.get("dag_run")
    found: dict[str, Any] = {}
    for name in ("dag_id", "run_id", "task_id", "map_index", "try_number", "state"):
        for source in (ti, run):
            value = getattr(source, name, None)
            if value is not None:
                found[name] = value if isinstance(value, int) else str(value)
                break
    date = context.get("logical_date") or getattr(run, "logical_date", None)
    if date is not None:
        found["logical_date"] = date.isoformat()
    if context.get("exception"):
        found["exception"] = _masked(context["exception"])
    if context.get("reason"):
        found["reason"] = _masked(context["reason"])
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def _masked(problem: Any) -> str:
    """A text without the secrets that Airflow knows: whoever reads the topic may not see them."""
    return str(redact(str(problem)))[:_TEXT_MAX]
