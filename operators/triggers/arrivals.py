"""Records that wait for a group, as asset events: nothing is committed here, so nothing announced can be lost.

    orders = Asset("kafka://broker-1:9092/orders", watchers=[
        AssetWatcher(name="arrived", trigger=RecordsArrivedEvent(topics=["orders"], group="orders-dag"))])

The trigger compares the group's committed offsets with the topics' ends and announces what lies between. A DAG that is
scheduled on the asset reads from the committed offsets and commits at its end (consuming.py). So a trigger that is
killed, started twice or restarted announces the same records again at most, and a run that finds them committed has
nothing to do (docs/decisions/0036).
"""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from logyard.admin.cluster.observation import Observation, Wanted
from logyard.broker.model import TopicPartition
from logyard.operators.fields import as_names
from logyard.operators.triggers.cluster import some
from logyard.operators.triggers.events import ClusterEvent
from logyard.operators.triggers.offsets import beyond_line

Ranges = Mapping[TopicPartition, tuple[int, int]]


class RecordsArrivedEvent(ClusterEvent):
    """Records are there that a group has not committed.

    The event has `group`, `topics`, `records` (at most; markers of transactions count) and `offsets`:
    "topic-partition" → {"start", "end"}. Behind the end of a log nothing waits: of a commit there the log warns.

    :param topics: the topics, a list or one name.
    :param group: the group that the DAG commits for. Without a commit a partition counts from its first record.
    :param records_min: announce when so many are new …
    :param wait_max_s: … or when the first of fewer has waited so long.
    :param remind_after_s: announce records again that are still not committed after so long without any commit: a run
        failed, or read only a part.
    """

    def __init__(
        self,
        *,
        topics: Sequence[str] | str,
        group: str,
        records_min: int = 1,
        wait_max_s: float = 60.0,
        remind_after_s: float = 900.0,
        **listening: Any,
    ) -> None:
        super().__init__(**listening)
        self.topics = as_names("topics", topics)
        self.group = group
        self.records_min = records_min
        self.wait_max_s = wait_max_s
        self.remind_after_s = remind_after_s
        self._announced: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._new_since: float | None = None
        self._quiet_since = 0.0
        self._beyond: set[str] = set()
        self._said = ""

    def wants(self) -> Wanted:
        topics = frozenset(self.topics)
        return Wanted(frozenset({self.group}), topics, starts=topics)

    def changes(self, seen: Observation | None, problem: Exception | None) -> list[dict[str, Any]]:
        if seen is not None:
            self._tell_untold(seen)
        waiting = None if seen is None else self._waiting(seen)
        if seen is None or waiting is None:
            return []  # unknown now: the next observation counts
        self._warn_of_lost(seen)
        return [self._announcement(waiting)] if self._is_due(waiting, monotonic()) else []

    def _waiting(self, seen: Observation) -> dict[TopicPartition, tuple[int, int]] | None:
        """The offsets between commit, or the first record, and end; None while the commits are unknown. A partition
        without a leader has no known end, or no known start, and is left out until it has."""
        if self.group not in seen.committed:
            return None
        committed = seen.committed[self.group]
        ends = {tp: seen.ends[tp] for tp, _ in seen.snapshot.partitions(sorted(self.topics)) if tp in seen.ends}
        behind = {tp: end for tp, end in ends.items() if committed.get(tp, 0) < end and tp in seen.starts}
        found = {tp: (max(committed.get(tp, 0), seen.starts[tp]), end) for tp, end in behind.items()}
        return {tp: (start, end) for tp, (start, end) in found.items() if start < end}

    def _tell_untold(self, seen: Observation) -> None:
        """Log why something cannot be announced: else nobody would know why no DAG runs."""
        absent = sorted(set(self.topics) - seen.snapshot.topics.keys())
        silent = [tp for tp, _ in seen.snapshot.partitions(sorted(self.topics)) if tp not in seen.ends]
        text = ""
        if self.group not in seen.committed:
            text = f"its commits are not known now ({seen.problems.get(self.group, 'they were not asked for')})"
        elif absent:
            text = f"topics {some(absent)} do not exist, or this login may not see them"
        elif silent:
            text = f"the ends of {some(silent)} are not known now ({seen.problems.get('', 'they have no leader')})"
        if text not in ("", self._said):
            self.log.warning("group %s: %s", self.group, text)
        self._said = text

    def _warn_of_lost(self, seen: Observation) -> None:
        """Where a commit is beyond the end of its log, records that are written there now are not announced."""
        beyond = {str(tp): records for tp, records in seen.beyond(self.group, self.topics).items()}
        if beyond.keys() - self._beyond:
            self.log.warning("group %s: %s", self.group, beyond_line(beyond))
        self._beyond = set(beyond)

    def _is_due(self, waiting: Ranges, now: float) -> bool:
        starts = {tp: start for tp, (start, _) in waiting.items()}
        if starts != self._starts:
            # Something was committed (or is new): whoever works on it is alive.
            self._starts, self._quiet_since = starts, now
        # An end below the announced one belongs to another topic of this name.
        self._announced = {tp: end for tp, end in self._announced.items() if tp in waiting and waiting[tp][1] >= end}
        new = sum(end - max(self._announced.get(tp, start), start) for tp, (start, end) in waiting.items())
        if new <= 0:
            self._new_since = None
            return bool(waiting) and now - self._quiet_since >= self.remind_after_s
        self._new_since = now if self._new_since is None else self._new_since
        return new >= self.records_min or now - self._new_since >= self.wait_max_s

    def _announcement(self, waiting: Ranges) -> dict[str, Any]:
        self._announced = {tp: end for tp, (_, end) in waiting.items()}
        self._new_since, self._quiet_since = None, monotonic()
        return {
            "group": self.group,
            "topics": sorted({tp.topic for tp in waiting}),
            "records": sum(end - start for start, end in waiting.values()),
            "offsets": {str(tp): {"start": start, "end": end} for tp, (start, end) in sorted(waiting.items())},
        }
