"""Where the replicas of new partitions go: placement with and without racks, and checks of placements by hand.

Rule 1: pure arithmetic over (broker id, rack) pairs; the random start and shift are arguments.
Rule 2: the result is exactly Kafka's (facts §14), so that tools of both agree.
Rule 3: leaders go round the brokers; the followers' distance grows by one after each full round, so that the others
share a lost broker's load; with racks no rack repeats before all are used.
"""

from collections.abc import Iterator, Mapping, Sequence

from logyard.broker.errors import ApiError, ErrorCode

BrokerRack = tuple[int, str | None]
"""A broker's id and its rack (None if it has none)."""

Placed = tuple[int, tuple[int, ...]]
"""A partition and its broker ids, preferred leader first."""

Placement = dict[int, tuple[int, ...]]
"""All of a topic's."""

# Even without followers more do not fit into a topic's znode, of a megabyte at most as ZooKeeper is set by itself.
PARTITIONS_MAX = 100_000


def place(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
    rack_aware: bool = True,
) -> Iterator[Placed]:
    """Place `partitions` new partitions whose ids begin at `first_partition`, one by one.

    `start` picks the first leader and `shift` the distance of the first follower; both are in 0..len(brokers)-1. Racks
    count if every broker has one and `rack_aware` is set. Raises ApiError: INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR, or UNKNOWN_SERVER_ERROR if only some brokers have a rack (Kafka's
    AdminOperationException has no code of its own).
    """
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    check_size(first_partition + partitions)
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    racks = {broker: rack for broker, rack in brokers if rack is not None} if rack_aware else {}
    if racks and len(racks) < len(brokers):
        missing = sorted(broker for broker, rack in brokers if rack is None)
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Not all brokers have rack information: give brokers {missing} a broker.rack, or place without racks.",
        )
    if racks:
        return _place_by_rack(racks, partitions, replication_factor, start, shift, first_partition)
    ids = sorted(broker for broker, _ in brokers)
    return _place_round_robin(ids, partitions, replication_factor, start, shift, first_partition)


def _place_round_robin(
    ids: Sequence[int], partitions: int, replication_factor: int, start: int, shift: int, first_partition: int
) -> Iterator[Placed]:
    for partition, first, distance in _leaders(len(ids), partitions, start, shift, first_partition):
        followers = (ids[_follower(first, distance, j, len(ids))] for j in range(replication_factor - 1))
        yield partition, (ids[first], *followers)


def _place_by_rack(
    racks: Mapping[int, str], partitions: int, replication_factor: int, start: int, shift: int, first_partition: int
) -> Iterator[Placed]:
    ring = arrange_by_rack(racks)
    rack_count = len(set(racks.values()))
    for partition, first, distance in _leaders(len(ring), partitions, start, shift, first_partition):
        replicas = [ring[first]]
        used = {racks[ring[first]]}
        k = 0
        while len(replicas) < replication_factor:
            broker = ring[_follower(first, distance * rack_count, k, len(ring))]
            k += 1
            rack_is_fresh = racks[broker] not in used or len(used) == rack_count
            if rack_is_fresh and broker not in replicas:
                replicas.append(broker)
                used.add(racks[broker])
        yield partition, tuple(replicas)


def _leaders(
    brokers: int, partitions: int, start: int, shift: int, first_partition: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (partition, index of its first replica, distance of its followers)."""
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % brokers == 0:
            shift += 1
        yield partition, (partition + start) % brokers, shift


def _follower(first: int, distance: int, j: int, brokers: int) -> int:
    return (first + 1 + (distance + j) % (brokers - 1)) % brokers


def arrange_by_rack(racks: Mapping[int, str]) -> list[int]:
    """Return broker ids taken from the racks in turn: racks sorted by name, ids ascending in each."""
    queues: dict[str, list[int]] = {}
    for broker in sorted(racks):
        queues.setdefault(racks[broker], []).append(broker)
    rows = [queues[rack] for rack in sorted(queues)]
    longest = max((len(row) for row in rows), default=0)
    return [row[i] for i in range(longest) for row in rows if i < len(row)]


def growth_start(brokers: Sequence[BrokerRack], head: int) -> int:
    """Return start (and shift) for partitions added to a topic whose partition 0 has `head` as preferred leader."""
    ids = sorted(broker for broker, _ in brokers)
    return next((index for index, broker in enumerate(ids) if broker >= head), 0)


def grow(brokers: Sequence[BrokerRack], existing: Mapping[int, Sequence[int]], count: int) -> Iterator[Placed]:
    """Place the partitions from len(existing) up to `count`, one by one, with partition 0's replication factor (facts
    §14)."""
    first = existing[0]
    start = growth_start(brokers, first[0])
    return place(
        brokers,
        count - len(existing),
        len(first),
        start=start,
        shift=start,
        first_partition=len(existing),
    )


def check_size(partitions: int) -> None:
    """Refuse more partitions than a topic can have with INVALID_PARTITIONS: some bytes may ask for two thousand million
    of them."""
    if partitions > PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic cannot have {partitions} partitions: {PARTITIONS_MAX} are the most that its znode can hold.",
        )


def manual(assignments: Sequence[tuple[int, Sequence[int]]]) -> Iterator[Placed]:
    """Check a placement by hand, one partition after the other; brokers need not be alive or known (facts §14).

    Raises ApiError(INVALID_REPLICA_ASSIGNMENT) for a repeated partition, no brokers, and a repeated or negative broker.
    `check_whole` does the rest.
    """
    check_size(len(assignments))
    known: set[int] = set()
    for partition, replicas in assignments:
        if partition in known:
            raise _bad_assignment(f"partition {partition} is given twice")
        check_replicas(replicas)
        known.add(partition)
        yield partition, tuple(replicas)


def check_whole(placed: Placement) -> None:
    """Refuse partition ids other than 0..n-1, and unequal sizes, with INVALID_REPLICA_ASSIGNMENT."""
    if not all(partition in placed for partition in range(len(placed))):
        raise _bad_assignment(f"partitions must be numbered 0 to {len(placed) - 1}, found {sorted(placed)}")
    sizes = {len(replicas) for replicas in placed.values()}
    if len(sizes) > 1:
        raise _bad_assignment(f"all partitions need the same number of replicas, found {sorted(sizes)}")


def check_replicas(replicas: Sequence[int]) -> None:
    """Refuse an empty list, a repeated broker and a negative id with INVALID_REPLICA_ASSIGNMENT."""
    if not replicas:
        raise _bad_assignment("replicas may not be empty")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(f"a broker is repeated in {list(replicas)}")
    if any(broker < 0 for broker in replicas):
        raise _bad_assignment(f"negative broker id in {list(replicas)}")


def _bad_assignment(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Invalid replica assignment: {why}.")
