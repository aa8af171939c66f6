"""Balances the numbers of replicas by moving as few and as small ones as possible. Pure.

The smallest movable replica goes from the fullest to the emptiest broker, until the counts are within one of each
other or nothing can move. Each pair of brokers goes through the giver's replicas once, from the smallest: a replica
that cannot move is considered again only after its partition's replicas have changed. So the cost of a move is about
the number of its partition's brokers times all brokers, however many partitions there are.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from logyard.admin.reassignment.disks import Room
from logyard.broker.model import TopicPartition

Placement = dict[TopicPartition, tuple[int, ...]]
Pair = tuple[int, int]


class Counts:
    """The number of replicas of each broker.

    :param order: all partitions, in the order in which they are moved.
    :param turn: breaks ties, broker → place; only these brokers give and take.
    :param racks: empty if they do not count.
    """

    def __init__(
        self,
        placed: Placement,
        order: Sequence[TopicPartition],
        turn: Mapping[int, int],
        racks: Mapping[int, str | None],
        sizes: Mapping[TopicPartition, int],
        room: Room,
    ) -> None:
        self.placed, self.order, self.turn, self.racks = placed, order, turn, racks
        self.sizes, self.room = sizes, room
        self.held: dict[int, list[int]] = {broker: [] for broker in turn}  # ranks: places in `order`
        for rank, tp in enumerate(order):
            for broker in placed[tp]:
                if broker in self.held:
                    self.held[broker].append(rank)
        # Each pair has considered the ranks below its mark; those that may be movable since then are in its heap.
        self._marks: dict[Pair, int] = {}
        self._again: dict[Pair, list[int]] = {}

    def even_out(self) -> None:
        """Move until the counts are within one of each other, or no replica can move."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        for source, target in self._uneven():
            rank = self._movable(source, target)
            if rank is not None:
                self._move(rank, source, target)
                return True
        return False

    def _uneven(self) -> Iterator[Pair]:
        """Pairs that differ by more than one, from the largest difference on."""
        count = {broker: len(ranks) for broker, ranks in self.held.items()}
        targets = sorted(count, key=lambda b: (count[b], self.turn[b]))

        def entry(source: int, place: int) -> tuple[int, int, int, int, int]:
            target = targets[place]
            return (count[target] - count[source], self.turn[source], self.turn[target], source, place)

        pairs = [entry(source, 0) for source in targets]
        heapify(pairs)
        while pairs and pairs[0][0] < -1:
            *_, source, place = pairs[0]
            yield source, targets[place]
            if place + 1 < len(targets):
                heapreplace(pairs, entry(source, place + 1))
            else:
                heappop(pairs)

    def _movable(self, source: int, target: int) -> int | None:
        """The first replica on `source` that may go to `target` and fits there."""
        pair = (source, target)
        again = self._again.get(pair, [])
        while again and not self._may(again[0], source, target):
            heappop(again)
        found = again[0] if again else None
        ranks, mark = self.held[source], self._marks.get(pair, 0)
        for place in range(bisect_left(ranks, mark), len(ranks)):
            if found is not None and ranks[place] > found:
                break
            if self._may(ranks[place], source, target):
                found = ranks[place]
                break
            self._marks[pair] = ranks[place] + 1
        if found is None:
            return None
        tp = self.order[found]
        return found if self.room.fits(tp, target, self.sizes.get(tp, 0)) else None

    def _may(self, rank: int, source: int, target: int) -> bool:
        """Whether neither a broker nor a rack occurs twice then, unless the rack does already."""
        replicas = self.placed[self.order[rank]]
        if source not in replicas or target in replicas:
            return False
        if not self.racks or self.racks[target] == self.racks[source]:
            return True
        others = [self.racks[b] for b in replicas if b != source]
        return self.racks[target] not in others or self.racks[source] in others

    def _move(self, rank: int, source: int, target: int) -> None:
        tp = self.order[rank]
        size = self.sizes.get(tp, 0)
        replicas = self.placed[tp] = tuple(target if b == source else b for b in self.placed[tp])
        self.held[source].pop(bisect_left(self.held[source], rank))
        insort(self.held[target], rank)
        self.room.take(tp, source, size)
        self.room.put(tp, target, size)
        for giver in replicas:
            for taker in self.held:
                if rank < self._marks.get((giver, taker), 0) and self._may(rank, giver, taker):
                    heappush(self._again.setdefault((giver, taker), []), rank)
