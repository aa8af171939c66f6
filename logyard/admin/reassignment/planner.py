"""Plans where replicas should be: greedy, with little movement. Pure, and the same for the same seed.

By descending priority (facts §35):
1. repair: replicas on brokers that are dead, drained or not allowed get another broker, all others stay;
2. the replication factor, where one is asked for;
3. racks: no rack twice in a partition while another has none;
4. replica counts within one of each other (only when balancing; `counts.py`);
   bytes within a tenth of the average (only when balancing disks; `balance.py`);
5. preferred leaders within one of each other, by the order of replicas alone.
A replaced replica keeps its place in the list, so a broker that replaces a preferred leader becomes the preferred
leader. If the disks' capacities are known, no plan fills one above the limit (`disks.py`); then there may be no plan.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.reassignment.balance import Bytes
from logyard.admin.reassignment.counts import Counts
from logyard.admin.reassignment.disks import LIMIT, Disks, Room
from logyard.admin.reassignment.plan import Move
from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition

Placement = dict[TopicPartition, tuple[int, ...]]


class PlanImpossible(LogyardError):
    """These brokers cannot meet the goals; the text says what would help."""


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The state that a plan starts from. `brokers`: live ones, id → rack. `sizes`: bytes of one replica.

    `disks`: the bytes that brokers hold and may hold; capacities of all live brokers or of none.
    """

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    brokers: Mapping[int, str | None]
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    disks: Disks = field(default_factory=Disks)

    @classmethod
    def of(
        cls,
        snapshot: ClusterSnapshot,
        topics: Sequence[str] | None = None,
        sizes: Iterable[ReplicaSize] = (),
        capacities: Mapping[int, int] | None = None,
        disk_limit: float = LIMIT,
    ) -> "PlanInput":
        """Take the partitions of those topics (None: all); a running move counts as finished."""
        moving = snapshot.reassignments or {}
        largest: dict[TopicPartition, int] = {}
        held: dict[int, int] = {}
        for entry in sizes:
            largest[entry.tp] = max(entry.size, largest.get(entry.tp, 0))
            held[entry.broker] = held.get(entry.broker, 0) + entry.size
        return cls(
            disks=Disks(capacities or {}, held, disk_limit),
            replicas={
                tp: moving[tp].target if tp in moving else view.replicas for tp, view in snapshot.partitions(topics)
            },
            brokers={broker.id: broker.rack for broker in snapshot.brokers.values()},
            sizes=largest,
        )


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of a plan. `drain`: brokers to empty; `balance`: even out replicas and leaders as well; `balance_disk`:
    even out bytes as well."""

    drain: frozenset[int] = frozenset()
    replication_factor: int | None = None
    balance: bool = False
    balance_disk: bool = False
    seed: int = 0


def plan_moves(start: PlanInput, goals: Goals) -> list[Move]:
    """Return the moves that meet the goals; none if they are met. Raises PlanImpossible, DiskTooFull."""
    board = _Board(start, goals)
    for tp in board.order:
        board.repair(tp)
    # Moving bytes can allow count moves that racks forbade. This ends: balancing counts makes them more even,
    # balancing bytes never makes them less even.
    while True:
        before = dict(board.placed)
        if goals.balance:
            board.even_replicas()
        if goals.balance_disk:
            board.even_bytes()
        if board.placed == before or not (goals.balance and goals.balance_disk):
            break
    board.even_leaders()
    moves = [
        Move(tp, tuple(start.replicas[tp]), board.placed[tp], start.sizes.get(tp, 0))
        for tp in sorted(board.placed)
        if board.placed[tp] != tuple(start.replicas[tp])
    ]
    start.disks.refuse_overfull(moves)
    return moves


class _Board:
    """The placement in progress, with the counts that every choice uses."""

    def __init__(self, start: PlanInput, goals: Goals) -> None:
        self.allowed = {broker: rack for broker, rack in start.brokers.items() if broker not in goals.drain}
        if not self.allowed:
            raise PlanImpossible("every live broker is to be drained: leave at least one")
        self.racks = self.allowed if all(rack is not None for rack in self.allowed.values()) else {}
        self.start, self.goals = start, goals
        self.placed: Placement = {tp: tuple(replicas) for tp, replicas in start.replicas.items()}
        # Large partitions first, while the emptiest brokers are still free.
        self.order = sorted(self.placed, key=lambda tp: (-start.sizes.get(tp, 0), tp))
        self.room = Room.of(start.disks, start.replicas)
        self.count: dict[int, int] = {}
        self.bytes: dict[int, int] = {}
        self._count()
        self.beside = self._beside()
        shuffled = sorted(self.count)
        random.Random(goals.seed).shuffle(shuffled)
        self.turn = {broker: index for index, broker in enumerate(shuffled)}

    def _count(self) -> None:
        self.count = dict.fromkeys(sorted(self.allowed), 0)
        self.bytes = dict.fromkeys(self.count, 0)
        for tp, replicas in self.placed.items():
            for broker in replicas:
                if broker in self.count:
                    self.count[broker] += 1
                    self.bytes[broker] += self.start.sizes.get(tp, 0)

    def _beside(self) -> dict[int, int]:
        """Bytes of partitions that are not part of the plan; they count for the disks."""
        if not self.start.disks.capacities:
            return {}
        return {b: max(self.start.disks.held.get(b, 0) - size, 0) for b, size in self.bytes.items()}

    def _fullness(self, broker: int) -> float:
        capacities = self.start.disks.capacities
        return (self.bytes[broker] + self.beside.get(broker, 0)) / (capacities[broker] if capacities else 1)

    def repair(self, tp: TopicPartition) -> None:
        """Steps 1 to 3 for one partition."""
        replicas = list(self.placed[tp])
        wanted = self.goals.replication_factor or len(replicas)
        if wanted > len(self.allowed):
            raise PlanImpossible(
                f"{tp} needs {wanted} replicas and {len(self.allowed)} brokers may hold them: "
                "add a broker, drain fewer, or ask for a smaller replication factor"
            )
        homeless = [slot for slot, broker in enumerate(replicas) if broker not in self.allowed]
        for slot in sorted(homeless, reverse=True)[: max(len(replicas) - wanted, 0)]:
            del replicas[slot]
        while len(replicas) > wanted:
            given_up = self._least_missed(replicas)
            replicas.remove(given_up)
            self._take(tp, given_up)
        for slot, broker in enumerate(replicas):
            if broker not in self.allowed:
                replicas[slot] = self._best(tp, [b for i, b in enumerate(replicas) if i != slot])
                self._put(tp, replicas[slot])
        while len(replicas) < wanted:
            replicas.append(self._best(tp, replicas))
            self._put(tp, replicas[-1])
        self._spread_racks(tp, replicas)
        self.placed[tp] = tuple(replicas)

    def even_replicas(self) -> None:
        """Step 4: move the smallest replicas first, until the counts are within one."""
        order = list(reversed(self.order))
        Counts(self.placed, order, self.turn, self.racks, self.start.sizes, self.room).even_out()
        self._count()

    def even_bytes(self) -> None:
        """Move bytes until they are within the band; if counts are balanced too, they get no less even."""
        Bytes(
            self.placed,
            self.start.sizes,
            list(self.allowed),
            self.racks,
            self.goals.balance,
            self.start.disks.capacities,
            self.beside,
            self.room,
        ).even_out()
        self._count()

    def even_leaders(self) -> None:
        """Step 5. Without `balance`, only partitions that move anyway are re-ordered, which costs nothing."""
        free = [tp for tp in sorted(self.placed) if self.goals.balance or self._moves(tp)]
        led = dict.fromkeys(self.count, 0)
        for replicas in self.placed.values():
            if replicas and replicas[0] in led:
                led[replicas[0]] += 1
        changed = True
        while changed:
            changed = False
            for tp in free:
                head, *rest = self.placed[tp]
                better = min(rest, key=lambda b: (led[b], self.turn[b]), default=head)
                if led[head] - led[better] > 1:
                    self.placed[tp] = (better, *(b for b in self.placed[tp] if b != better))
                    led[head], led[better] = led[head] - 1, led[better] + 1
                    changed = True

    def _moves(self, tp: TopicPartition) -> bool:
        return set(self.placed[tp]) != set(self.start.replicas[tp])

    def _best(self, tp: TopicPartition, others: Sequence[int]) -> int:
        used = {self.racks.get(broker) for broker in others} if self.racks else set()
        candidates = [broker for broker in self.allowed if broker not in others]
        return min(
            candidates,
            key=lambda b: (
                bool(self.racks) and self.racks[b] in used,
                not self.room.fits(tp, b, self.start.sizes.get(tp, 0)),
                self._fullness(b),
                self.count[b],
                self.turn[b],
            ),
        )

    def _least_missed(self, replicas: Sequence[int]) -> int:
        """The replica to remove if there are too many: one in a repeated rack first, then the fullest broker's."""
        racks = [self.racks.get(broker) for broker in replicas]
        slots = range(1, len(replicas)) if len(replicas) > 1 else range(1)
        slot = max(
            slots,
            key=lambda i: (bool(self.racks) and racks.count(racks[i]) > 1, self.count[replicas[i]], i),
        )
        return replicas[slot]

    def _spread_racks(self, tp: TopicPartition, replicas: list[int]) -> None:
        while self.racks:
            racks = [self.racks[broker] for broker in replicas]
            repeated = [slot for slot in range(len(replicas) - 1, -1, -1) if racks.count(racks[slot]) > 1]
            fresh = [broker for broker in self.allowed if self.racks[broker] not in racks]
            if not repeated or not fresh:
                return
            slot = repeated[0]
            size = self.start.sizes.get(tp, 0)
            better = min(
                fresh, key=lambda b: (not self.room.fits(tp, b, size), self._fullness(b), self.count[b], self.turn[b])
            )
            self._take(tp, replicas[slot])
            self._put(tp, better)
            replicas[slot] = better

    def _put(self, tp: TopicPartition, broker: int) -> None:
        size = self.start.sizes.get(tp, 0)
        self.count[broker] += 1
        self.bytes[broker] += size
        self.room.put(tp, broker, size)

    def _take(self, tp: TopicPartition, broker: int) -> None:
        size = self.start.sizes.get(tp, 0)
        self.count[broker] -= 1
        self.bytes[broker] -= size
        self.room.take(tp, broker, size)
