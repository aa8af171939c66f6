"""Conditions of a cluster to wait for: one class each, pure functions of an observation."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from logyard.admin.cluster.observation import EVERY_TOPIC, Observation, Wanted
from logyard.admin.cluster.snapshot import ClusterSnapshot, topic_json
from logyard.admin.connector import Connector
from logyard.admin.ports import DescribingClient
from logyard.admin.reassignment.copying import CopyReport
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.progress import plan_progress
from logyard.admin.reassignment.waves import adopt, held_back
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.killing import end_moves
from logyard.operators.triggers.base import ClusterTrigger

_NAMED = 5


def some(items: Sequence[Any]) -> str:
    """The first few of a list, for a log line."""
    named = ", ".join(str(item) for item in items[:_NAMED])
    return named if len(items) <= _NAMED else f"{named} and {len(items) - _NAMED} more"


class TopicReadyTrigger(ClusterTrigger):
    """Every partition of a topic has a live leader, and there are at least `partitions` of them, if given.

    As the controller's broker knows it too: another may not have heard yet that this is another topic of the name.
    """

    def __init__(self, *, topic: str, partitions: int | None, **waiting: Any) -> None:
        super().__init__(**waiting)
        self.topic = topic
        self.partitions = partitions

    def wants(self) -> Wanted:
        return Wanted(ready=frozenset({self.topic}))

    def look(self, seen: Observation) -> dict[str, Any] | None:
        told = seen.witnessed
        if told is None or not told.ready(self.topic, self.partitions):
            return None
        return topic_json(told.topics[self.topic])

    def missing(self, seen: Observation) -> str:
        if seen.snapshot.ready(self.topic, self.partitions):
            return f"the controller to tell that topic {self.topic} is ready"
        if self.topic not in seen.snapshot.topics:
            return f"topic {self.topic} to appear"
        return f"leaders of {some(seen.snapshot.unled([self.topic])) or f'new partitions of {self.topic}'}"


class TopicGoneTrigger(ClusterTrigger):
    """The controller's broker no longer knows a topic. A topic of the same name with another id is another topic.

    :param topic_id: the id of the topic that is being deleted; None: not known.
    """

    def __init__(self, *, topic: str, topic_id: str | None = None, **waiting: Any) -> None:
        super().__init__(**waiting)
        self.topic = topic
        self.topic_id = topic_id

    def wants(self) -> Wanted:
        return Wanted(partitions=frozenset({TopicPartition(self.topic, 0)}))  # every topic has it

    def look(self, seen: Observation) -> dict[str, Any] | None:
        there = seen.snapshot.topics.get(self.topic)
        if there is None:
            return {"topic": self.topic} if self.topic in seen.snapshot.missing else None
        # A producer that still writes may have caused it to be created again.
        made_again = None not in (self.topic_id, there.topic_id) and there.topic_id != self.topic_id
        return {"topic": self.topic} if made_again else None

    def missing(self, seen: Observation) -> str:
        return f"topic {self.topic} to be gone"


class FullyReplicatedTrigger(ClusterTrigger):
    """Every partition (of these topics) has a leader and a full ISR, for `hold_s` seconds without interruption.

    A named topic that does not exist fails the condition: its name may be wrong, or it was deleted. The seconds start
    again when the condition fails, when the cluster does not answer, and when the triggerer is restarted. At their end
    the controller's broker has to say the same: another one may lag, or not have heard of a topic yet.
    """

    def __init__(self, *, topics: Sequence[str] | None, hold_s: float = 0.0, **waiting: Any) -> None:
        super().__init__(**waiting)
        self.topics = topics
        self.hold_s = hold_s
        self._well_since: float | None = None

    def wants(self) -> Wanted:
        is_over = self._well_since is not None and monotonic() - self._well_since >= self.hold_s
        return Wanted(ready=frozenset(self.topics or (EVERY_TOPIC,))) if is_over or not self.hold_s else Wanted()

    def look(self, seen: Observation) -> dict[str, Any] | None:
        snapshot, told = seen.snapshot, self._told(seen)
        if self._lacks(snapshot) or (told is not None and self._lacks(told)):
            self._well_since = None
            return None
        now = monotonic()
        if self._well_since is None:
            self._well_since = now
        held_s = now - self._well_since
        if held_s < self.hold_s or told is None:
            return None
        return {
            "partitions": sum(1 for _ in told.partitions(self.topics)),
            "controller": told.controller,
            "held_s": held_s,
        }

    def unseen(self) -> None:
        self._well_since = None

    def _told(self, seen: Observation) -> ClusterSnapshot | None:
        """What the witnesses tell of these topics, where they were asked for them."""
        told = seen.witnessed if self.topics else seen.whole
        named = set(self.topics or ())
        return told if told is not None and named <= {*told.topics, *told.missing} else None

    def _lacks(self, snapshot: ClusterSnapshot) -> bool:
        absent = set(self.topics or ()) - set(snapshot.topics)
        return bool(absent or snapshot.unled(self.topics) or snapshot.under_replicated(self.topics))

    def missing(self, seen: Observation) -> str:
        absent = sorted(set(self.topics or ()) - set(seen.snapshot.topics))
        if absent:
            return f"topics {some(absent)} to appear"
        unled, under = seen.snapshot.unled(self.topics), seen.snapshot.under_replicated(self.topics)
        if unled:
            return f"leaders of {some(unled)}"
        if under:
            return f"full ISRs of {some(under)}"
        return f"ISRs to stay full for {self.hold_s:g} s" if self.hold_s else "the controller to tell of full ISRs"


class ControllerElectedTrigger(ClusterTrigger):
    """A live broker is the controller, and not `other_than`, if given.

    It has to answer that it is: another broker names a dead one until it hears of the next. In a KRaft cluster, where
    Metadata names any broker as controller, all brokers have to answer.
    """

    def __init__(self, *, other_than: int | None, **waiting: Any) -> None:
        super().__init__(**waiting)
        self.other_than = other_than

    def wants(self) -> Wanted:
        return Wanted(controller=True)

    def look(self, seen: Observation) -> dict[str, Any] | None:
        found = seen.controller
        return None if found in (None, self.other_than) else {"controller": found}

    def missing(self, seen: Observation) -> str:
        named = seen.snapshot.controller
        if seen.controller is None and named in seen.snapshot.brokers and named != self.other_than:
            return f"broker {named}, which another names as the controller, to say that it is"
        return "a controller" if self.other_than is None else f"a controller other than {self.other_than}"


class BrokersUpTrigger(ClusterTrigger):
    """All these brokers are registered, as the controller's broker knows it too: another may not have heard that one
    of them has died."""

    def __init__(self, *, brokers: Sequence[int], **waiting: Any) -> None:
        super().__init__(**waiting)
        self.brokers = brokers

    def wants(self) -> Wanted:
        return Wanted(up=frozenset(self.brokers))

    def look(self, seen: Observation) -> dict[str, Any] | None:
        up = set(seen.snapshot.brokers) & (seen.registered or frozenset())
        return {"brokers": sorted(up)} if set(self.brokers) <= up else None

    def missing(self, seen: Observation) -> str:
        away = sorted(set(self.brokers) - set(seen.snapshot.brokers))
        if not away:
            return f"the controller to tell that brokers {some(sorted(self.brokers))} are up"
        return f"brokers {some(away)}"


class ReassignmentDoneTrigger(ClusterTrigger):
    """Moves have ended: replicas are the target, no reassignment runs, the ISR is full.

    :param moves: the moves, from `Move.as_json`.
    :param held_back: moves that cannot start before a broker is back; the wait ends when it is.
    :param broker_patience_s: for how many seconds a target broker may be away until the trigger gives up (`given_up` in
        the result); they start again when the cluster does not answer, and when the triggerer is restarted.
    :param cancel_on_kill: when the deferred task is killed, cancel the running moves and end the throttle.
    :param throttle_owner: the owner of that throttle.
    """

    reports = True

    def __init__(
        self,
        *,
        moves: Sequence[dict[str, Any]],
        held_back: Sequence[dict[str, Any]] = (),
        broker_patience_s: float = 900.0,
        cancel_on_kill: bool = False,
        throttle_owner: str | None = None,
        **waiting: Any,
    ) -> None:
        super().__init__(**waiting)
        self.moves = moves
        self.held_back = list(held_back)
        self.broker_patience_s = broker_patience_s
        self.cancel_on_kill = cancel_on_kill
        self.throttle_owner = throttle_owner
        self._away_since: float | None = None
        self._copying = CopyReport(_moves(moves))

    def report(self, client: DescribingClient, now_s: float) -> str | None:
        return self._copying.line(client, now_s)

    def wants(self) -> Wanted:
        return Wanted(partitions=frozenset(move.tp for move in _moves([*self.moves, *self.held_back])))

    def look(self, seen: Observation) -> dict[str, Any] | None:
        started, later = _moves(self.moves), _moves(self.held_back)
        state = plan_progress([*started, *later], seen.snapshot)
        can_start = len(held_back(later, seen.snapshot)) < len(later)
        if can_start or not (state.stuck or plan_progress(started, seen.snapshot).running):
            return state.as_json()
        if not state.stuck:
            self._away_since = None
            return None
        now = monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if now - self._away_since < self.broker_patience_s:
            return None
        return {**state.as_json(), "given_up": True}

    def unseen(self) -> None:
        self._away_since = None  # it may have been back

    def missing(self, seen: Observation) -> str:
        state = plan_progress([*_moves(self.moves), *_moves(self.held_back)], seen.snapshot)
        text = f"{len(state.running)} of {len(self.moves) + len(self.held_back)} moves: {some(state.running)}"
        return f"{text}; a target broker of {some(state.stuck)} is away" if state.stuck else text

    async def on_kill(self) -> None:
        if self.cancel_on_kill:
            hook = ClusterHook(self.logyard_conn_id)
            settings = await hook.asettings()
            await asyncio.get_running_loop().run_in_executor(None, self._cancel, hook.connector, settings)

    def _cancel(self, connector: Connector, settings: ClusterSettings) -> None:
        client = connector.cluster(settings)
        try:
            end_moves(client, _moves(self.moves), self.throttle_owner, connector.pause(), self.cluster_id)
        finally:
            client.close()


def _moves(entries: Sequence[dict[str, Any]]) -> list[Move]:
    return [Move.from_json(entry) for entry in entries]


class MovesEndedTrigger(ClusterTrigger):
    """None of these moves runs any more: they are done or cancelled, or their topics are deleted."""

    def __init__(self, *, moves: Sequence[dict[str, Any]], **waiting: Any) -> None:
        super().__init__(**waiting)
        self.moves = moves

    def look(self, seen: Observation) -> dict[str, Any] | None:
        if seen.snapshot.reassignments is None:  # no controller answers: the moves are unknown
            return None
        found = adopt([Move.from_json(move) for move in self.moves], seen.snapshot)
        return None if found.under_way else {"moves": len(self.moves)}

    def missing(self, seen: Observation) -> str:
        if seen.snapshot.reassignments is None:
            return "a controller that tells which moves run"
        found = adopt([Move.from_json(move) for move in self.moves], seen.snapshot)
        return f"the end of {len(found.under_way)} moves: {some([move.tp for move in found.under_way])}"
