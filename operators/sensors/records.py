"""Sensors for records: one that a function accepts, and a function called for each of them."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context

from logyard.admin.errors import LogyardError
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowSensorTimeout, conf
from logyard.operators.callables import called, imported, refuse_text
from logyard.operators.client_options import TakesClientOptions
from logyard.operators.failures import TaskRefused, failing_for_good, lasts, skipped_if_asked
from logyard.operators.fields import as_names
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.hooks.records import RecordsHook, cluster_of
from logyard.operators.links import ClusterPageLink
from logyard.operators.reading import REQUEST_S, first_offsets
from logyard.operators.results import hand_over
from logyard.operators.topic_ids import Origin, told_of
from logyard.operators.triggers.base import FAILED, TIMEOUT, WaitEvent
from logyard.operators.triggers.records import AwaitRecordTrigger

_GRACE_S = 60


class AwaitRecordSensor(TakesClientOptions, BaseSensorOperator):
    """Wait for a record that a function accepts; returns {"record", "result", "offsets"} (`AwaitRecordTrigger`).

    It begins at the committed offsets of `group`, else at the topics' ends when the task starts. The group's offsets
    are committed behind the record once it is the task's XCom (as long as `do_xcom_push` is set), never by the trigger,
    and never back. Where the connection is edited meanwhile and leads to another cluster, the wait fails; nothing is
    committed there, nor for a topic that was deleted and made anew (its id tells).

    A triggerer that is started again begins where the wait began (Airflow keeps what a trigger was made with, and
    nothing after), so no record is missed, and the function sees those again that it had not accepted.

    :param topics: topics, a list or its JSON; `^…` is a regular expression, of topics that are made meanwhile too: a
        minute later at most they are read from their first record. (templated)
    :param apply_function: the dotted path of a function of one `confluent_kafka.Message`: a value that is true accepts
        the record, and is what JSON has: text, numbers, lists, mappings. None: the first record. (templated)
    :param apply_function_args: its first arguments. (templated)
    :param apply_function_kwargs: its keyword arguments. (templated)
    :param group: the group whose offsets say where to begin, and are committed. (templated)
    :param commit_offset: whether to commit.
    :param client_options: librdkafka's options beside the connection's. (templated)
    :param logyard_conn_id: the connection. (templated)
    :param deferrable: wait in the triggerer.
    """

    template_fields = (
        "topics",
        "apply_function",
        "apply_function_args",
        "apply_function_kwargs",
        "group",
        "client_options",
        "logyard_conn_id",
    )
    operator_extra_links = (ClusterPageLink(),)
    ui_color = "#dfe9e4"

    def __init__(
        self,
        *,
        topics: Sequence[str] | str,
        apply_function: str | None = None,
        apply_function_args: Sequence[Any] | None = None,
        apply_function_kwargs: Mapping[str, Any] | None = None,
        group: str | None = None,
        commit_offset: bool = True,
        client_options: Mapping[str, Any] | str | None = None,
        logyard_conn_id: str = ClusterHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: float = 2.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.topics = topics
        self.apply_function = apply_function
        self.apply_function_args = apply_function_args
        self.apply_function_kwargs = apply_function_kwargs
        self.group = group
        self.commit_offset = commit_offset
        self.client_options = client_options
        self.logyard_conn_id = logyard_conn_id
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """As Airflow's own loop does, which this sensor does not enter: `soft_fail`, `never_fail`, `silent_fail`."""
        with skipped_if_asked(self):
            return self._awaited(context)

    @failing_for_good
    def _awaited(self, context: Context) -> Any:
        refuse_text("apply_function_args", self.apply_function_args)
        if self.apply_function is not None:
            imported("apply_function", self.apply_function)  # a wrong path is told before anybody waits
        deadline_ms = round((time.time() + self.timeout) * 1000)
        offsets, origin = self._first_offsets()
        return self._wait(context, offsets, deadline_ms, origin)

    def _first_offsets(self) -> tuple[dict[str, int], Origin]:
        """Where to begin, and in which cluster; with `silent_fail` asked again until the sensor's time is over."""
        until = time.monotonic() + self.timeout
        while True:
            try:
                return self._ask_first_offsets()
            except LogyardError as problem:
                if not self.silent_fail or lasts(problem):
                    raise
                self.log.error("the first look failed, waiting on: %s", problem)
                if time.monotonic() + self.poke_interval > until:
                    raise AirflowSensorTimeout(f"no first look in {self.timeout:g} s: {problem}") from None
            time.sleep(self.poke_interval)

    def _ask_first_offsets(self) -> tuple[dict[str, int], Origin]:
        topics, hook = as_names("topics", self.topics), RecordsHook(self.logyard_conn_id)
        # Asked before the offsets: those that are read are then of these topics, or of none.
        told = told_of(hook, topics, self.log.warning) if topics else {}
        consumer = hook.consumer(self.group or "logyard", self.options())
        try:
            offsets = first_offsets(consumer, topics, has_group=bool(self.group), told=told)
            named = {name.rpartition("-")[0] for name in offsets}
            cluster_id = (cluster_of(consumer, min(named), REQUEST_S) or "") if named else ""
        finally:
            consumer.close()
        return offsets, Origin(cluster_id, {n: v.topic_id for n, v in told.items() if v.topic_id and n in named})

    def _wait(self, context: Context, offsets: Mapping[str, int], deadline_ms: int, origin: Origin) -> Any:
        trigger = AwaitRecordTrigger(
            logyard_conn_id=self.logyard_conn_id,
            offsets=offsets,
            cluster_id=origin.cluster_id,
            apply_function=self.apply_function,
            apply_function_args=list(self.apply_function_args or ()),
            apply_function_kwargs=dict(self.apply_function_kwargs or {}),
            client_options=self.options(),
            whole_topics=True,
            patterns=[topic for topic in as_names("topics", self.topics) if topic.startswith("^")],
            poll_interval_s=self.poke_interval,
            deadline_ms=deadline_ms,
        )
        kept: dict[str, Any] = {"deadline_ms": deadline_ms, **asdict(origin)}
        if not self.deferrable:
            return self.execute_complete(context, asyncio.run(trigger.outcome()).as_json(), **kept)
        left_s = max(deadline_ms / 1000 - time.time(), 0.0)
        return self.defer(
            trigger=trigger,
            method_name="execute_complete",
            kwargs=kept,
            timeout=timedelta(seconds=left_s + _GRACE_S),
        )

    @failing_for_good
    def execute_complete(
        self,
        context: Context,
        event: dict[str, Any] | None,
        deadline_ms: int,
        topic_ids: Mapping[str, str] | None = None,
        cluster_id: str = "",
    ) -> Any:
        """Commit behind the record, and return it. Raises AirflowSensorTimeout, AirflowFailException."""
        return self._arrived(context, self._found(event), deadline_ms, Origin(cluster_id, topic_ids or {}))

    def _arrived(self, context: Context, values: dict[str, Any], deadline_ms: int, origin: Origin) -> Any:
        if self.group and self.commit_offset:
            hand_over(self, context, values)
        self._commit(values["offsets"], origin)
        return values

    def _found(self, event: dict[str, Any] | None) -> dict[str, Any]:
        if event is not None and event.get("status") == TIMEOUT:
            raise AirflowSensorTimeout(str(event.get("message")))
        if event is not None and event.get("status") == FAILED:
            raise TaskRefused(str(event.get("message")))
        return WaitEvent.from_event(event)

    def _commit(self, offsets: Mapping[str, int], origin: Origin) -> None:
        if not self.group or not self.commit_offset:
            return
        wanted = {}
        for name, offset in offsets.items():
            topic, _, partition = name.rpartition("-")
            wanted[TopicPartition(topic, int(partition))] = offset
        with ClusterHook(self.logyard_conn_id).client() as client:
            origin.refuse_another(client, self.group)
            before = client.group_offsets(self.group)  # another task of the group may be further by now
            ahead = {tp: offset for tp, offset in wanted.items() if offset > before.get(tp, -1)}
            if ahead:
                client.alter_group_offsets(self.group, ahead)


class AwaitRecordFunctionSensor(AwaitRecordSensor):
    """Call a function for every record that is accepted, until the sensor's `timeout`; it waits in the triggerer.

    :param event_triggered_function: called with the record's values ({"record", "result", "offsets"}) and the task's
        context as keyword arguments; then the group's offsets are committed, and the wait goes on. A function, or its
        dotted path.
    """

    def __init__(self, *, event_triggered_function: Callable[..., Any] | str, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "deferrable": True})
        self.event_triggered_function = event_triggered_function

    def _arrived(self, context: Context, values: dict[str, Any], deadline_ms: int, origin: Origin) -> Any:
        called("event_triggered_function", self.event_triggered_function)(values, **context)
        self._commit(values["offsets"], origin)
        return self._wait(context, values["offsets"], deadline_ms, origin)
