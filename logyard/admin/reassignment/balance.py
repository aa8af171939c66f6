"""Balances bytes over brokers with as few moves as possible. Pure.

The target is a band around the average, not a point (facts §30): only brokers above the band give replicas, always to
the emptiest broker that may take them, and of the fullest broker's replicas the one nearest to half of the gap. If no
single replica helps, a large one is exchanged for a small one. Balanced brokers do not change, so a second run does
nothing. If the disks' capacities are known, a broker's load is the share of its disks that it uses.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from logyard.admin.reassignment.disks import Room
from logyard.broker.model import TopicPartition

Placement = dict[TopicPartition, tuple[int, ...]]
Entry = tuple[int, TopicPartition]

# A broker may hold this share above the average; the plan aims a little lower, so that later runs find nothing.
BAND = 0.10
_MARGIN = 0.9
_CANDIDATES = 64


@dataclass(slots=True)
class Bytes:
    """The bytes of each broker. `racks` is empty if they do not count; `keep_counts`: no move may make the numbers of
    replicas less even; then only exchanges help.

    `capacities`: bytes of each broker's disks, of all or of none; `beside`: bytes of other partitions on each broker.
    """

    placed: Placement
    sizes: Mapping[TopicPartition, int]
    brokers: Sequence[int]
    racks: Mapping[int, str | None]
    keep_counts: bool = False
    capacities: Mapping[int, int] = field(default_factory=dict)
    beside: Mapping[int, int] = field(default_factory=dict)
    room: Room | None = None
    held: dict[int, int] = field(default_factory=dict)
    lists: dict[int, list[Entry]] = field(default_factory=dict)
    _changes: dict[int, int] = field(default_factory=dict)  # of each broker, counted
    _hopeless: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # pair → their changes then

    def __post_init__(self) -> None:
        self.held = {broker: self.beside.get(broker, 0) for broker in sorted(self.brokers)}
        self.lists = {broker: [] for broker in self.held}
        self._changes = dict.fromkeys(self.held, 0)
        for tp, replicas in self.placed.items():
            for broker in replicas:
                if broker in self.held:
                    self.held[broker] += self.sizes.get(tp, 0)
                    self.lists[broker].append((self.sizes.get(tp, 0), tp))
        for entries in self.lists.values():
            entries.sort()

    def even_out(self) -> None:
        """Move replicas until every broker is inside the band, or nothing helps any more."""
        average = sum(self.held.values()) / max(sum(map(self._capacity, self.held)), 1)
        top = average * (1 + BAND * _MARGIN)
        stuck: set[int] = set()
        while True:
            over = [b for b in self.held if self._fullness(b) > top and b not in stuck]
            if not over:
                return
            source = max(over, key=lambda b: (self._fullness(b), -b))
            if not self._relieve(source):
                stuck.add(source)
            else:
                stuck.clear()

    def _capacity(self, broker: int) -> int:
        return self.capacities[broker] if self.capacities else 1

    def _fullness(self, broker: int) -> float:
        return self.held[broker] / self._capacity(broker)

    def _relieve(self, source: int) -> bool:
        for target in sorted(self.held, key=lambda b: (self._fullness(b), b)):
            ours, theirs = self._capacity(source), self._capacity(target)
            # Less than `gap` leaves the target below where the source is now; `half` makes them equally full.
            gap = self.held[source] * theirs // ours - self.held[target]
            half = (self.held[source] * theirs - self.held[target] * ours) // (ours + theirs)
            if target == source or gap <= 0:
                return False
            seen = (self._changes[source], self._changes[target])
            if self._hopeless.get((source, target)) == seen:
                continue
            given = self._best_move(source, target, half, gap)
            if given is not None:
                self._move(given, source, target)
                return True
            exchange = self._best_exchange(source, target, half, gap)
            if exchange is not None:
                self._move(exchange[0], source, target)
                self._move(exchange[1], target, source)
                return True
            self._hopeless[source, target] = seen
        return False

    def _best_move(self, source: int, target: int, half: int, gap: int) -> TopicPartition | None:
        if self.keep_counts and len(self.lists[source]) <= len(self.lists[target]):
            return None
        return next((tp for _, tp in self._near(source, half, gap) if self._may(tp, source, target)), None)

    def _best_exchange(
        self, source: int, target: int, half: int, gap: int
    ) -> tuple[TopicPartition, TopicPartition] | None:
        small = [entry for entry in self.lists[target][:_CANDIDATES] if self._may(entry[1], target, source)]
        may: dict[TopicPartition, bool] = {}
        for size, tp in small:
            for other, large in self._near(source, size + half, size + gap):
                if other > size:
                    if large not in may:
                        may[large] = self._may(large, source, target)
                    if may[large]:
                        return large, tp
        return None

    def _near(self, broker: int, wanted: int, below: int) -> Iterator[Entry]:
        """Replicas on a broker of more than 0 and less than `below` bytes, nearest to `wanted` first; a few."""
        entries = self.lists[broker]
        upper = bisect_left(entries, (wanted, TopicPartition("", -1)))
        lower = upper - 1
        least, most = max(upper - _CANDIDATES, 0), min(upper + _CANDIDATES, len(entries))
        while lower >= least or upper < most:
            under = wanted - entries[lower][0] if lower >= least else None
            above = entries[upper][0] - wanted if upper < most else None
            if above is None or (under is not None and under <= above):
                # Replicas of equal size, in the order of their names.
                first = bisect_left(entries, (entries[lower][0], TopicPartition("", -1)), least, lower)
                nearest, lower = entries[first : lower + 1], first - 1
            else:
                nearest, upper = [entries[upper]], upper + 1
            if 0 < nearest[0][0] < below:
                yield from nearest

    def _may(self, tp: TopicPartition, source: int, target: int) -> bool:
        replicas = self.placed[tp]
        if target in replicas or (self.room and not self.room.fits(tp, target, self.sizes.get(tp, 0))):
            return False
        others = {self.racks[b] for b in replicas if b != source and b in self.racks}
        return not self.racks or self.racks[target] not in others or self.racks[source] in others

    def _move(self, tp: TopicPartition, source: int, target: int) -> None:
        size = self.sizes.get(tp, 0)
        self.placed[tp] = tuple(target if b == source else b for b in self.placed[tp])
        self.lists[source].pop(bisect_left(self.lists[source], (size, tp)))
        insort(self.lists[target], (size, tp))
        self.held[source] -= size
        self.held[target] += size
        if self.room:
            self.room.take(tp, source, size)
            self.room.put(tp, target, size)
        for broker in (source, *self.placed[tp]):
            if broker in self._changes:
                self._changes[broker] += 1
