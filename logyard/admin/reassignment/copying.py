"""How far the copying of moves is, for those who wait: bytes done and to do, rate, time left."""

from collections.abc import Sequence
from typing import Protocol

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.quantities import duration, plural, size
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.progress import move_states
from logyard.broker.model import TopicPartition

Copies = dict[tuple[TopicPartition, int], tuple[int, int]]
"""(partition, broker that gets a replica) → bytes that it has, bytes that it needs."""


class CopyReader(Protocol):
    """The calls that are needed; `ports.ClusterClient` has them."""

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot: ...

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]: ...


class CopyReport:
    """Tells how far moves are; the rate is that since the time before. Not for several threads at once."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves = tuple(moves)
        self._before: Copies = {}
        self._before_s: float | None = None

    def line(self, client: CopyReader, now_s: float) -> str:
        """One line for a log; `now_s` is on a clock that never goes back. Raises ApiError, ClusterUnreachable."""
        snapshot = client.snapshot(sorted({move.tp.topic for move in self._moves}), reassignments=True)
        in_place = sum(state.is_done or state.is_lost for state in move_states(self._moves, snapshot))
        text = f"{in_place} of {plural(len(self._moves), 'move')} in place"
        copies = self._copies(client, snapshot)
        rate = self._rate(copies, now_s)
        self._before, self._before_s = copies, now_s
        there, wanted = (sum(pair[i] for pair in copies.values()) for i in (0, 1))
        if not wanted:
            return text
        text += f"; {size(there)} of {size(wanted)} copied"
        if rate is None:
            return text
        left = f", about {duration((wanted - there) / rate)} left" if rate > 0 else ""
        return f"{text}, {size(rate)} per second{left}"

    def _copies(self, client: CopyReader, snapshot: ClusterSnapshot) -> Copies:
        running = snapshot.reassignments or {}
        views = dict(snapshot.partitions(sorted({move.tp.topic for move in self._moves})))
        mine = {move.tp: running[move.tp].adding for move in self._moves if move.tp in running and move.tp in views}
        asked = {views[tp].leader for tp in mine} | {broker for adding in mine.values() for broker in adding}
        alive = sorted(asked & set(snapshot.brokers))
        held = (
            {(one.tp, one.broker): one.size for one in client.replica_sizes(alive) if not one.is_future} if mine else {}
        )
        found: Copies = {}
        for tp, adding in mine.items():
            whole = held.get((tp, views[tp].leader), 0)
            for broker in adding:
                there = whole if broker in views[tp].isr else min(held.get((tp, broker), 0), whole)
                found[tp, broker] = (there, whole)
        return found

    def _rate(self, copies: Copies, now_s: float) -> float | None:
        """Bytes per second since the time before; what has ended since then had all of its bytes at the end."""
        if self._before_s is None or now_s <= self._before_s:
            return None
        grown = sum(max(there - self._before.get(copy, (0, 0))[0], 0) for copy, (there, _) in copies.items())
        ended = sum(whole - there for copy, (there, whole) in self._before.items() if copy not in copies)
        return (grown + ended) / (now_s - self._before_s)
