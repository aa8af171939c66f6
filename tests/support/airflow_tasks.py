"""Running operators as a worker and a triggerer do, in this process, on a cluster in memory.

    use(monkeypatch, MemoryCluster({1: None}))         # the connection logyard_default
    result, deferrals = run(CreateTopicOperator(task_id="c", topic="t"), context())

`run` carries every deferral through its trigger, made anew from what `serialize` gave. To look at one deferral, catch
TaskDeferred and call `first_event(deferral.trigger)`.
"""

import asyncio
import functools
import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from logyard.operators import throttles
from logyard.operators.hooks.cluster import ClusterHook
from tests.support.memory_clients import MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_records import MemoryRecords

CONNECTION: dict[str, Any] = {"conn_type": "logyard", "host": "memory:1", "extra": {"broker_ids": [1, 2, 3]}}


class FakeTaskInstance:
    """The part of a task instance that operators use. `others`: dag_id → run_id → task_id → state, of running runs."""

    def __init__(self, run_id: str = "run", task_id: str = "go") -> None:
        self.dag_id, self.run_id, self.task_id, self.map_index = "dag", run_id, task_id, -1
        self.try_number, self.max_tries = 1, 0
        self.stats_tags: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.others: dict[str, dict[str, dict[str, str]]] = {}

    def get_dr_count(self, dag_id: str, states: Sequence[str]) -> int:
        assert list(states) == ["running"]
        return len(self.others.get(dag_id, {}))

    def get_task_states(
        self, dag_id: str, task_ids: Sequence[str], run_ids: Sequence[str] | None = None
    ) -> dict[str, dict[str, str]]:
        return {
            run: {t: state for t, state in tasks.items() if t in task_ids}
            for run, tasks in self.others.get(dag_id, {}).items()
            if run_ids is None or run in run_ids
        }

    def xcom_push(self, key: str, value: Any) -> None:
        self.values[key] = json.loads(json.dumps(value))


@contextmanager
def killed_in(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> Iterator[None]:
    """The block ends in this method, of which nothing is done: its worker is killed there."""

    def dies(*_: object, **__: object) -> None:
        raise SystemExit("killed")

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, dies)
        with pytest.raises(SystemExit):
            yield


class Store(dict[str, Any]):
    """`task_state_store`: what outlives a try."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.pop(key, None)


def context(store: Store | None = None, **identity: str) -> Any:
    return {"ti": FakeTaskInstance(**identity), "task_state_store": Store() if store is None else store}


def keep_throttles(monkeypatch: Any) -> MemoryRecords:
    """Keep the records of throttles in memory: only a worker can reach Airflow's Variables."""
    records = MemoryRecords()
    monkeypatch.setattr(throttles, "VariableRecords", lambda cluster_id: records)
    return records


def use(monkeypatch: Any, cluster: MemoryCluster, *, ensemble: bool = True, **extra: Any) -> None:
    """Let the connection `logyard_default` lead to a cluster in memory."""
    connection = {**CONNECTION, "extra": {**CONNECTION["extra"], **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))
    monkeypatch.setattr(ClusterHook, "connector", MemoryConnector(cluster, zookeeper=ensemble))
    keep_throttles(monkeypatch)


def run(operator: Any, ctx: Any, haste: float = 1.0) -> tuple[Any, int]:
    """Execute, and carry every deferral through its trigger and back; returns the result and the deferrals' number.

    The trigger that runs is made anew from what `serialize` gave, by way of JSON, as the triggerer does it. Operators
    are told of waits that they took `haste` times as long.
    """
    from logyard.operators.airflow_names import TaskDeferred

    deferrals = 0
    call = operator.execute
    while True:
        try:
            result = json.loads(json.dumps(call(ctx)))
            said_outcome(operator, ctx)
            return result, deferrals
        except TaskDeferred as deferral:
            deferrals += 1
            deferred: Any = deferral
        if deferred.timeout is None:
            raise AssertionError("a deferral without a timeout may wait for ever")
        event = first_event(deferred.trigger)
        if haste != 1.0:
            event["waited_s"] *= haste
        resumed, kwargs = deferred.method_name, json.loads(json.dumps(deferred.kwargs or {}))
        call = functools.partial(_resume, operator, resumed, {"event": event, **kwargs})


def said_outcome(operator: Any, ctx: Any) -> str:
    """Check that the operator has told what it did, if it tells that at all; returns the sentence."""
    if getattr(operator, "tells", None) is None:
        return ""
    outcome = ctx["ti"].values["outcome"]
    assert outcome["sentence"], type(operator)
    assert all(len(row) == len(outcome["columns"]) for row in outcome["rows"]), outcome
    return str(outcome["sentence"])


def _resume(operator: Any, method_name: str, arguments: dict[str, Any], ctx: Any) -> Any:
    return operator.resume_execution(method_name, arguments, ctx)


def remade(trigger: Any) -> Any:
    """The trigger as the triggerer has it: made anew from its serialized form, by way of JSON."""
    path, fields = trigger.serialize()
    module, name = path.rsplit(".", 1)
    made = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(fields)))
    assert made.serialize() == (path, fields)
    return made


def first_event(trigger: Any) -> Any:
    """What a trigger reports first, after a round trip through its serialized form."""
    made = remade(trigger)

    async def take() -> Any:
        async for event in made.run():
            return json.loads(json.dumps(event.payload))
        raise AssertionError("the trigger ended without an event")

    return asyncio.run(asyncio.wait_for(take(), 20))
