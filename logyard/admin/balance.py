"""Evening out bytes over brokers by moving as few of them as possible; pure.

A band, not a point (operations-facts): only brokers above the band give, always to the emptiest that may take, and
of the fullest broker's replicas the one that comes nearest to half of the gap. Where no single replica helps, a large
one is exchanged for a small one. What is reached already is left alone, so a second run finds nothing to do.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logyard.broker.model import TopicPartition

Placement = dict[TopicPartition, tuple[int, ...]]

# A broker may hold this share more than the average; the plan aims a little lower, so that it does not flap.
BAND = 0.10
_MARGIN = 0.9
_CANDIDATES = 64


@dataclass(slots=True)
class Bytes:
    """Who holds how much. `racks` is empty where they do not count; `keep_counts`: no move makes the
    numbers of replicas less even; then only exchanges help."""

    placed: Placement
    sizes: Mapping[TopicPartition, int]
    brokers: Sequence[int]
    racks: Mapping[int, str | None]
    keep_counts: bool = False
    held: dict[int, int] = field(default_factory=dict)
    lists: dict[int, list[tuple[int, TopicPartition]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = dict.fromkeys(sorted(self.brokers), 0)
        self.lists = {broker: [] for broker in self.held}
        for tp, replicas in self.placed.items():
            for broker in replicas:
                if broker in self.held:
                    self.held[broker] += self.sizes.get(tp, 0)
                    self.lists[broker].append((self.sizes.get(tp, 0), tp))
        for entries in self.lists.values():
            entries.sort()

    def even_out(self) -> None:
        """Move replicas until every broker is inside the band, or nothing helps any more."""
        average = sum(self.held.values()) / max(len(self.held), 1)
        top = average * (1 + BAND * _MARGIN)
        stuck: set[int] = set()
        while True:
            over = [b for b, size in self.held.items() if size > top and b not in stuck]
            if not over:
                return
            source = max(over, key=lambda b: (self.held[b], -b))
            if not self._relieve(source):
                stuck.add(source)
            else:
                stuck.clear()

    def _relieve(self, source: int) -> bool:
        for target in sorted(self.held, key=lambda b: (self.held[b], b)):
            gap = self.held[source] - self.held[target]
            if target == source or gap <= 0:
                return False
            given = self._best_move(source, target, gap)
            if given is not None:
                self._move(given, source, target)
                return True
            exchange = self._best_exchange(source, target, gap)
            if exchange is not None:
                self._move(exchange[0], source, target)
                self._move(exchange[1], target, source)
                return True
        return False

    def _best_move(self, source: int, target: int, gap: int) -> TopicPartition | None:
        if self.keep_counts and len(self.lists[source]) <= len(self.lists[target]):
            return None
        return next((tp for tp in self._near(source, gap // 2, gap) if self._may(tp, source, target)), None)

    def _best_exchange(self, source: int, target: int, gap: int) -> tuple[TopicPartition, TopicPartition] | None:
        small = [entry for entry in self.lists[target][:_CANDIDATES] if self._may(entry[1], target, source)]
        for size, tp in small:
            for large in self._near(source, size + gap // 2, size + gap):
                if self.sizes.get(large, 0) > size and self._may(large, source, target):
                    return large, tp
        return None

    def _near(self, broker: int, wanted: int, below: int) -> list[TopicPartition]:
        """Partitions on a broker of more than no and less than `below` bytes, nearest to `wanted` first; a few."""
        entries = self.lists[broker]
        middle = bisect_left(entries, (wanted, TopicPartition("", -1)))
        window = entries[max(middle - _CANDIDATES, 0) : middle + _CANDIDATES]
        return [tp for size, tp in sorted(window, key=lambda e: (abs(e[0] - wanted), e)) if 0 < size < below]

    def _may(self, tp: TopicPartition, source: int, target: int) -> bool:
        replicas = self.placed[tp]
        if target in replicas:
            return False
        others = {self.racks[b] for b in replicas if b != source and b in self.racks}
        return not self.racks or self.racks[target] not in others or self.racks[source] in others

    def _move(self, tp: TopicPartition, source: int, target: int) -> None:
        size = self.sizes.get(tp, 0)
        self.placed[tp] = tuple(target if b == source else b for b in self.placed[tp])
        self.lists[source].remove((size, tp))
        insort(self.lists[target], (size, tp))
        self.held[source] -= size
        self.held[target] += size
