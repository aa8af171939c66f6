"""Waiting until no transaction hangs: a pure function of an observation."""

from collections.abc import Sequence
from typing import Any

from logyard.admin.cluster.observation import EVERY_TOPIC, Observation, Wanted
from logyard.admin.transactions.transactions import OpenTransaction
from logyard.operators.triggers.base import ClusterTrigger
from logyard.operators.triggers.cluster import some


class NoHangingTransactionsTrigger(ClusterTrigger):
    """No transaction hangs on the partitions of some topics; a named topic that does not exist fails the condition.

    :param topics: the topics; empty: all.
    :param idle_minutes: a transaction hangs if nothing was written in it for that long, and no coordinator knows it.
    """

    def __init__(self, *, topics: Sequence[str] | None, idle_minutes: int, **waiting: Any) -> None:
        super().__init__(**waiting)
        self.topics = topics
        self.idle_minutes = idle_minutes

    def wants(self) -> Wanted:
        return Wanted(hanging=frozenset((topic, self.idle_minutes) for topic in self.topics or (EVERY_TOPIC,)))

    def look(self, seen: Observation) -> dict[str, Any] | None:
        hanging = self._hanging(seen)
        if self._absent(seen):
            return None
        return {"topics": sorted(self.topics or ())} if hanging == [] else None

    def _absent(self, seen: Observation) -> list[str]:
        return sorted(set(self.topics or ()) - set(seen.snapshot.topics))

    def missing(self, seen: Observation) -> str:
        if absent := self._absent(seen):
            return f"topics {some(absent)} to appear"
        hanging = self._hanging(seen)
        if hanging is None:
            return f"the transactions to be known ({seen.hanging_problem or 'they were not asked for'})"
        named = [f"{one.tp} from offset {one.producer.start_offset}" for one in hanging]
        return f"an end of {len(hanging)} hanging transactions: {some(named)}"

    def _hanging(self, seen: Observation) -> list[OpenTransaction] | None:
        """Those of these topics that are old enough; None where it is not known."""
        if seen.hanging is None:
            return None
        named = set(self.topics or ())
        oldest_ms = seen.snapshot.taken_at_ms - self.idle_minutes * 60_000
        return [
            one for one in seen.hanging if one.producer.last_ms < oldest_ms and (not named or one.tp.topic in named)
        ]
