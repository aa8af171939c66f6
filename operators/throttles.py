"""Throttles of runs: whose they are, at which rate, and where the records of them are kept (Airflow Variables)."""

import hashlib
import json
import logging
from collections.abc import Callable, Collection
from typing import Any

from airflow.sdk import Variable

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.errors import CorruptData
from logyard.admin.ports import ClusterClient, Pause
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.reassignment.throttles.records import Record
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.operators.fields import as_integer

_log = logging.getLogger(__name__)

# What a task is in while it works, or will again.
WORKING = {"scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "restarting"}

_DESCRIPTION = "A throttle that a run of Logyard has set on a cluster; it goes away with the throttle."


class VariableRecords:
    """The records of one cluster's throttles as Airflow Variables, one each: all runs find them, and outlive a crash.

    :param cluster_id: the cluster.
    """

    def __init__(self, cluster_id: str) -> None:
        self._prefix = f"logyard_throttle.{cluster_id}."

    def load(self) -> list[Record]:
        found = []
        for key in list(Variable.keys(prefix=self._prefix)):
            text = Variable.get(key, default=None)
            try:
                found += [Record.from_json(text)] if text else []
            except CorruptData as problem:
                _log.warning("the Variable %s is left alone: %s", key, problem)
        return found

    def put(self, record: Record) -> None:
        Variable.set(self._key(record.owner), json.dumps(record.as_json()), _DESCRIPTION)

    def drop(self, owner: str) -> None:
        Variable.delete(self._key(owner))

    def _key(self, owner: str) -> str:
        return self._prefix + hashlib.sha256(owner.encode()).hexdigest()[:24]


def book_of(client: ClusterClient, snapshot: ClusterSnapshot, pause: Pause) -> ThrottleBook:
    """The throttles of that cluster."""
    live = None if client.reaches_dead_brokers else list(snapshot.brokers)
    return ThrottleBook(client, VariableRecords(snapshot.cluster_id), pause, live)


def owner_of(ti: Any) -> str:
    """The name of a task instance as an owner; all of its tries are the same one."""
    return json.dumps([ti.dag_id, ti.run_id, ti.task_id, ti.map_index])


def is_of_run(owner: str, ti: Any) -> bool:
    """Whether an owner is a task of the same DAG run."""
    return bool(json.loads(owner)[:2] == [ti.dag_id, ti.run_id])


def lives(ti: Any) -> Callable[[str], bool]:
    """Whether an owner works, or will again, as Airflow knows it; asked by a running task."""

    def asked(owner: str) -> bool:
        dag_id, run_id, task_id, map_index = json.loads(owner)
        states = ti.get_task_states(dag_id=dag_id, run_ids=[run_id], task_ids=[task_id])
        # Mapped tasks are told as `task_id_map_index`.
        names = (task_id, f"{task_id}_{map_index}")
        return any(run.get(name) in WORKING for run in states.values() for name in names)

    return asked


def sweep(book: ThrottleBook, ti: Any, moving: Collection[tuple[str, int]]) -> None:
    """End the throttles of runs that died and for whose partitions nothing moves; says whose."""
    for owner in book.sweep(lives(ti), moving):
        tell_ended(owner)


def tell_ended(owner: str) -> None:
    _log.info("ended the throttle that %s had left", owner)


def rate_of(throttle: int | str | None, settings: ClusterSettings) -> int | None:
    """Bytes per second: the task's own, none where that is 0, the connection's where it says nothing."""
    rate = as_integer("throttle", throttle, -1)
    if rate < -1:
        raise BadSettings(f"throttle: bytes per second, 0 for none, or nothing are expected, found {throttle!r}")
    return settings.throttle or None if rate == -1 else rate or None
