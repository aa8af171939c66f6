"""Events of a cluster for `AssetWatcher`: a DAG runs when the controller changes, a broker is lost, replicas lag.

    asset = Asset("controller", watchers=[AssetWatcher(name="changed", trigger=ControllerChangedEvent(…))])

All event triggers and deferred tasks of a connection share one poll of its cluster (`watch.py`). A triggerer compares
each observation with its first one: what changed while no triggerer ran is not reported, unless something is still
wrong. It begins anew where the connection leads to another cluster.
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from logyard.admin.cluster.observation import Observation, Wanted
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.ports import AccessRefused
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.operators.fields import as_names
from logyard.operators.triggers.base import constructor_fields
from logyard.operators.triggers.watch import ClusterWatch, ConnectionUnreadable

_DELETED_MAX = 1000


class ClusterEvent(BaseEventTrigger):
    """Report changes of a cluster.

    :param logyard_conn_id: the connection.
    :param poll_interval_s: seconds between two reads of the cluster.
    """

    def __init__(self, *, logyard_conn_id: str = "logyard_default", poll_interval_s: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.logyard_conn_id = logyard_conn_id
        self.poll_interval_s = poll_interval_s
        self.connection: ClusterSettings | None = None
        """As it was at the last observation: it may be edited while the trigger listens."""

    @abstractmethod
    def changes(self, seen: Observation | None, problem: Exception | None) -> list[dict[str, Any]]:
        """The events of an observation, or of the error instead of one; called for each of them in order."""

    def wants(self) -> Wanted:
        """What an observation must contain beside the snapshot."""
        return Wanted()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = constructor_fields(type(self))
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        watch = ClusterWatch.of(self.logyard_conn_id)
        listener, cluster_id, said = self, "", ""
        while True:
            told = await watch.next_look(self.poll_interval_s, listener.wants())
            seen, problem = (None, told) if isinstance(told, Exception) else (told, None)
            if problem is not None and str(problem) != said:
                self.log.warning("%s: %s is not known now: %s", type(self).__name__, self.logyard_conn_id, problem)
            said = "" if problem is None else str(problem)
            if seen is not None and (found := seen.snapshot.cluster_id):
                if cluster_id not in ("", found):
                    # The connection was edited: what was seen before is of another cluster.
                    listener = type(self)(**self.serialize()[1])
                cluster_id = found
            listener.connection = watch.connection or listener.connection
            try:
                changes = listener.changes(seen, problem)
            except Exception:
                # An error on one observation must not end the trigger: Airflow would not start it again.
                self.log.exception("%s: an observation of %s is skipped", type(self).__name__, self.logyard_conn_id)
                continue
            for change in changes:
                self.log.info("%s: %s", type(self).__name__, change)
                payload = {"event": type(self).__name__, "logyard_conn_id": self.logyard_conn_id, **change}
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]


class ControllerChangedEvent(ClusterEvent):
    """The controller has changed, or there was none in `patience` reads: none is named, or it does not answer.

    One event for each change: `since` is the controller before, `controller` the one now (-1: none). A controller
    answers if it answers ListPartitionReassignments; this counts only if it did so before, so that a user without the
    right to ask gets no false alarm.

    Without ZooKeeper (the connection names none) Kafka's brokers name any broker as the controller: then only the loss
    and the return of the controller are events.
    """

    def __init__(self, *, patience: int = 3, **listening: Any) -> None:
        super().__init__(**listening)
        self.patience = patience
        self._known: int | None = None
        self._without = 0
        self._answered = False

    @property
    def _names_count(self) -> bool:
        return self.connection is None or self.connection.zookeeper is not None

    def changes(self, seen: Observation | None, problem: Exception | None) -> list[dict[str, Any]]:
        if isinstance(problem, ConnectionUnreadable | AccessRefused):
            return []  # not the cluster's failure: a broker that refuses a login is alive
        found = self._controller(seen.snapshot) if seen else -1
        if found < 0:
            self._without += 1
            if self._without < self.patience or self._known == -1:
                return []
        else:
            self._without = 0
        before, self._known = self._known, found
        if before is None and found >= 0:
            return []
        if before == found or (not self._names_count and before is not None and before >= 0 <= found):
            return []
        return [{"controller": found, "since": before, "problem": str(problem) if problem else None}]

    def _controller(self, snapshot: ClusterSnapshot) -> int:
        answers = snapshot.reassignments is not None
        if snapshot.controller not in snapshot.brokers or (self._answered and not answers):
            return -1
        self._answered = self._answered or answers
        return snapshot.controller


class BrokerLostEvent(ClusterEvent):
    """A broker is no longer registered; one event for each, after `patience` reads without it.

    Each read may be another broker's, which may not have heard that it is back: it is away if the controller's broker
    does not know it either. Where nobody can tell, that read does not count.
    """

    def __init__(self, *, patience: int = 3, **listening: Any) -> None:
        super().__init__(**listening)
        self.patience = patience
        self._known: set[int] = set()
        self._missed: dict[int, int] = {}

    def wants(self) -> Wanted:
        return Wanted(brokers=frozenset(self._known))

    def changes(self, seen: Observation | None, problem: Exception | None) -> list[dict[str, Any]]:
        if seen is None:
            return []  # no broker answers: ControllerChangedEvent reports that
        live = set(seen.snapshot.brokers)
        self._missed = {b: self._missed.get(b, 0) + (b in seen.away) for b in self._known - live}
        lost = sorted(b for b, looks in self._missed.items() if looks >= self.patience)
        self._known = (self._known | live) - set(lost)
        return [{"broker": broker, "live": sorted(live)} for broker in lost]


class UnderReplicationEvent(ClusterEvent):
    """Partitions are under-replicated in `patience` reads in a row; one event until all are replicated again."""

    def __init__(self, *, topics: Sequence[str] | str | None = None, patience: int = 6, **listening: Any) -> None:
        super().__init__(**listening)
        self.topics = as_names("topics", topics) or None
        self.patience = patience
        self._looks = 0

    def changes(self, seen: Observation | None, problem: Exception | None) -> list[dict[str, Any]]:
        if seen is None:
            return []
        under = seen.snapshot.under_replicated(self.topics)
        unled = seen.snapshot.unled(self.topics)
        self._looks = self._looks + 1 if under or unled else 0
        if self._looks != self.patience:
            return []
        return [
            {
                "under_replicated": len(under),
                "offline": len(unled),
                "examples": [str(tp) for tp in (unled or under)[:10]],
                "live": sorted(seen.snapshot.brokers),
            }
        ]


class TopicsChangedEvent(ClusterEvent):
    """Topics were created or deleted: one event for each read that finds a difference, without internal topics.

    Each read may be another broker's, and the controller's news may reach it late: a topic that it does not know is
    deleted only if the controller's broker does not know it either, and one that was deleted is not created again by a
    broker that still shows it.
    """

    def __init__(self, **listening: Any) -> None:
        super().__init__(**listening)
        self._known: dict[str, str | None] | None = None
        self._deleted: dict[str, str] = {}  # the ids of those that were deleted last

    def wants(self) -> Wanted:
        return Wanted(partitions=frozenset(TopicPartition(name, 0) for name in self._known or ()))

    def changes(self, seen: Observation | None, problem: Exception | None) -> list[dict[str, Any]]:
        if seen is None:
            return []
        found = {name: topic.topic_id for name, topic in seen.snapshot.topics.items() if not topic.internal}
        if self._known is None:
            self._known = found
            return []
        before, missing = self._known, set(seen.snapshot.missing)
        found = {name: known for name, known in found.items() if known is None or known != self._deleted.get(name)}
        self._known = found | {name: before[name] for name in before.keys() - found.keys() - missing}
        # A topic that was deleted and created again between two reads has another id.
        again = {name for name in before.keys() & found.keys() if None not in (before[name], found[name])}
        again = {name for name in again if before[name] != found[name]}
        created, deleted = found.keys() - before.keys() | again, before.keys() - self._known.keys() | again
        self._remember({name: known for name in deleted if (known := before[name]) is not None})
        return [{"created": sorted(created), "deleted": sorted(deleted)}] if created or deleted else []

    def _remember(self, deleted: Mapping[str, str]) -> None:
        kept = [item for item in self._deleted.items() if item[0] not in deleted]
        self._deleted = dict([*kept, *deleted.items()][-_DELETED_MAX:])
