"""Throttles of runs: their owners, their rates, and their records, which are Airflow Variables."""

import hashlib
import json
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from airflow.sdk import Variable

from logyard.admin.cluster.presence import with_all_brokers
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.errors import ApiError, CorruptData
from logyard.admin.ports import ClusterClient, ClusterUnreachable, Pause
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.reassignment.throttles.records import Record
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.operators.fields import as_integer

_log = logging.getLogger(__name__)

# The states of a task that runs, or will run.
WORKING = {"scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "restarting"}

_DESCRIPTION = "A throttle that a run of Logyard has set on a cluster; deleted when the throttle ends."


class VariableRecords:
    """The records of one cluster's throttles, one Airflow Variable each: all runs find them, also after a crash.

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
                _log.warning("the Variable %s is ignored: %s", key, problem)
        return found

    def put(self, record: Record) -> None:
        Variable.set(self._key(record.owner), json.dumps(record.as_json()), _DESCRIPTION)

    def drop(self, owner: str) -> None:
        Variable.delete(self._key(owner))

    def _key(self, owner: str) -> str:
        return self._prefix + hashlib.sha256(owner.encode()).hexdigest()[:24]


def every_broker(client: ClusterClient, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The snapshot with the brokers that the witnesses know too: one that is left out would keep its throttle, or get
    none. As it is where nobody can tell now."""
    with suppress(ApiError, ClusterUnreachable):
        return with_all_brokers(client, snapshot)
    return snapshot


def book_of(client: ClusterClient, snapshot: ClusterSnapshot, pause: Pause) -> ThrottleBook:
    """The book of that cluster's throttles."""
    return book_of_all(client, snapshot if client.reaches_dead_brokers else every_broker(client, snapshot), pause)


def book_of_all(client: ClusterClient, snapshot: ClusterSnapshot, pause: Pause) -> ThrottleBook:
    """The same for who has a snapshot with every broker already."""
    live = None if client.reaches_dead_brokers else list(snapshot.brokers)
    return ThrottleBook(client, VariableRecords(snapshot.cluster_id), pause, live)


def owner_of(ti: Any) -> str:
    """The owner's name of a task instance; all its tries are one owner."""
    return json.dumps([ti.dag_id, ti.run_id, ti.task_id, ti.map_index])


def is_of_run(owner: str, ti: Any) -> bool:
    """Whether an owner is a task of the same DAG run."""
    return bool(json.loads(owner)[:2] == [ti.dag_id, ti.run_id])


def lives(ti: Any) -> Callable[[str], bool]:
    """Return a function that tells whether an owner runs, or will run, according to Airflow; for use in a running
    task."""

    def asked(owner: str) -> bool:
        dag_id, run_id, task_id, map_index = json.loads(owner)
        states = ti.get_task_states(dag_id=dag_id, run_ids=[run_id], task_ids=[task_id])
        # Airflow names mapped tasks `task_id_map_index` here.
        names = (task_id, f"{task_id}_{map_index}")
        return any(run.get(name) in WORKING for run in states.values() for name in names)

    return asked


def sweep(book: ThrottleBook, ti: Any, moving: Collection[tuple[str, int]]) -> None:
    """End the throttles of dead runs whose partitions do not move; logs each."""
    for owner in book.sweep(lives(ti), moving):
        log_ended(owner)


def log_ended(owner: str) -> None:
    _log.info("ended the throttle that %s left behind", owner)


def rate_of(throttle: int | str | None, settings: ClusterSettings) -> int | None:
    """Bytes per second: the task's, by default the connection's; None for 0. Raises BadSettings."""
    rate = as_integer("throttle", throttle, -1)
    if rate < -1:
        raise BadSettings(f"throttle: expected bytes per second, 0 for none, or nothing, found {throttle!r}")
    return settings.throttle or None if rate == -1 else rate or None
