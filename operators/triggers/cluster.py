"""What can be waited for: one small class each, pure functions of a snapshot."""

import asyncio
from collections.abc import Sequence
from typing import Any

from logyard.admin.connect import Connector
from logyard.admin.execution import Move, adopt, progress
from logyard.admin.settings import ClusterSettings
from logyard.admin.snapshot import ClusterSnapshot, topic_json
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.triggers.base import ClusterTrigger

_NAMED = 5


def some(items: Sequence[Any]) -> str:
    """The first few of a list, for a line of a log."""
    named = ", ".join(str(item) for item in items[:_NAMED])
    return named if len(items) <= _NAMED else f"{named} and {len(items) - _NAMED} more"


class TopicReadyTrigger(ClusterTrigger):
    """Every partition of a topic (at least that many, if given) has a leader that is alive."""

    def __init__(
        self, *, topic: str, partitions: int | None, logyard_conn_id: str, poll_interval_s: float, deadline_ms: int
    ) -> None:
        super().__init__(logyard_conn_id=logyard_conn_id, poll_interval_s=poll_interval_s, deadline_ms=deadline_ms)
        self.topic = topic
        self.partitions = partitions

    def look(self, snapshot: ClusterSnapshot) -> dict[str, Any] | None:
        return topic_json(snapshot.topics[self.topic]) if snapshot.ready(self.topic, self.partitions) else None

    def missing(self, snapshot: ClusterSnapshot) -> str:
        if self.topic not in snapshot.topics:
            return f"topic {self.topic} to appear"
        return f"leaders of {some(snapshot.unled([self.topic])) or f'new partitions of {self.topic}'}"


class TopicGoneTrigger(ClusterTrigger):
    """A topic has left the metadata."""

    def __init__(self, *, topic: str, logyard_conn_id: str, poll_interval_s: float, deadline_ms: int) -> None:
        super().__init__(logyard_conn_id=logyard_conn_id, poll_interval_s=poll_interval_s, deadline_ms=deadline_ms)
        self.topic = topic

    def look(self, snapshot: ClusterSnapshot) -> dict[str, Any] | None:
        return {"topic": self.topic} if self.topic not in snapshot.topics else None

    def missing(self, snapshot: ClusterSnapshot) -> str:
        return f"topic {self.topic} to be gone"


class FullyReplicatedTrigger(ClusterTrigger):
    """Every partition (of those topics) is led and its ISR is full."""

    def __init__(
        self, *, topics: Sequence[str] | None, logyard_conn_id: str, poll_interval_s: float, deadline_ms: int
    ) -> None:
        super().__init__(logyard_conn_id=logyard_conn_id, poll_interval_s=poll_interval_s, deadline_ms=deadline_ms)
        self.topics = topics

    def look(self, snapshot: ClusterSnapshot) -> dict[str, Any] | None:
        if snapshot.unled(self.topics) or snapshot.under_replicated(self.topics):
            return None
        return {"partitions": sum(1 for _ in snapshot.partitions(self.topics)), "controller": snapshot.controller}

    def missing(self, snapshot: ClusterSnapshot) -> str:
        unled, under = snapshot.unled(self.topics), snapshot.under_replicated(self.topics)
        return f"leaders of {some(unled)}" if unled else f"full ISRs of {some(under)}"


class ControllerElectedTrigger(ClusterTrigger):
    """A live broker is controller; another one than `other_than`, where that is given."""

    def __init__(
        self, *, other_than: int | None, logyard_conn_id: str, poll_interval_s: float, deadline_ms: int
    ) -> None:
        super().__init__(logyard_conn_id=logyard_conn_id, poll_interval_s=poll_interval_s, deadline_ms=deadline_ms)
        self.other_than = other_than

    def look(self, snapshot: ClusterSnapshot) -> dict[str, Any] | None:
        elected = snapshot.controller in snapshot.brokers and snapshot.controller != self.other_than
        return {"controller": snapshot.controller} if elected else None

    def missing(self, snapshot: ClusterSnapshot) -> str:
        return "a controller" if self.other_than is None else f"a controller other than {self.other_than}"


class BrokersUpTrigger(ClusterTrigger):
    """All those brokers are registered."""

    def __init__(
        self, *, brokers: Sequence[int], logyard_conn_id: str, poll_interval_s: float, deadline_ms: int
    ) -> None:
        super().__init__(logyard_conn_id=logyard_conn_id, poll_interval_s=poll_interval_s, deadline_ms=deadline_ms)
        self.brokers = brokers

    def look(self, snapshot: ClusterSnapshot) -> dict[str, Any] | None:
        return {"brokers": sorted(snapshot.brokers)} if set(self.brokers) <= set(snapshot.brokers) else None

    def missing(self, snapshot: ClusterSnapshot) -> str:
        return f"brokers {some(sorted(set(self.brokers) - set(snapshot.brokers)))}"


class ReassignmentDoneTrigger(ClusterTrigger):
    """Moves have ended: replicas are the target, no reassignment runs, the ISR is full.

    :param moves: the moves as `Move.as_json` writes them.
    :param cancel_on_kill: cancel what still runs of them when the deferred task is killed.
    """

    def __init__(
        self,
        *,
        moves: Sequence[dict[str, Any]],
        cancel_on_kill: bool = False,
        logyard_conn_id: str,
        poll_interval_s: float,
        deadline_ms: int,
    ) -> None:
        super().__init__(logyard_conn_id=logyard_conn_id, poll_interval_s=poll_interval_s, deadline_ms=deadline_ms)
        self.moves = moves
        self.cancel_on_kill = cancel_on_kill

    def look(self, snapshot: ClusterSnapshot) -> dict[str, Any] | None:
        state = progress([Move.from_json(move) for move in self.moves], snapshot)
        # A destination that died is not waited for: the operator decides what becomes of its moves.
        return state.as_json() if not state.running or state.stuck else None

    def missing(self, snapshot: ClusterSnapshot) -> str:
        state = progress([Move.from_json(move) for move in self.moves], snapshot)
        return f"{len(state.running)} of {len(self.moves)} moves: {some(state.running)}"

    async def on_kill(self) -> None:
        if self.cancel_on_kill:
            hook = ClusterHook(self.logyard_conn_id)
            settings = await hook.asettings()
            await asyncio.get_running_loop().run_in_executor(None, self._cancel, hook.connector, settings)

    def _cancel(self, connector: Connector, settings: ClusterSettings) -> None:
        client = connector.cluster(settings)
        try:
            moves = [Move.from_json(move) for move in self.moves]
            running = adopt(moves, client.snapshot(reassignments=True)).under_way
            client.alter_reassignments({move.tp: None for move in running})
        finally:
            client.close()
