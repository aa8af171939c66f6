"""Each delayed produce, fetch and deletion of records is answered exactly once, whatever happens (facts §15)."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.errors import ErrorCode
from logyard.broker.replication.events import FetchParams, PartitionFetch, StopReplica, StopReplicaPartition
from logyard.broker.replication.ports import IsrChangeResult
from logyard.broker.replication.purgatory import Delayed, Purgatory
from tests.support.lengths import examples
from tests.support.replica_world import T0, T1, Timer, World, fetch_once, follower_fetch, produce

PARTITIONS = st.sampled_from([T0, T1])
OFFSETS = st.integers(0, 6)
WAITS = st.sampled_from([0, 50, 200])

steps = st.one_of(
    st.tuples(st.just("produce"), PARTITIONS, WAITS),
    st.tuples(st.just("consume"), st.lists(PARTITIONS, min_size=1, max_size=3), OFFSETS, WAITS),
    st.tuples(st.just("follow"), PARTITIONS, st.sampled_from([2, 3]), OFFSETS, WAITS),
    st.tuples(st.just("delete"), PARTITIONS, OFFSETS, WAITS),
    st.tuples(st.just("lead"), PARTITIONS, st.sampled_from([1, 2])),
    st.tuples(st.just("stop"), PARTITIONS, st.booleans()),
    st.tuples(st.just("offline"), PARTITIONS),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("pass"), st.sampled_from([10, 60, 250])),
)


class Noting:
    """Keeps every timer that was begun."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.begun: list[Timer] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        self.begun.append(self._world.call_later(delay, callback))
        return self.begun[-1]


class Counting(Purgatory):
    """Counts how often each operation that came in was completed."""

    def __init__(self, world: World) -> None:
        self.timers = Noting(world)
        super().__init__(self.timers)
        self.completed: dict[Delayed, int] = {}

    def try_complete_else_watch(self, operation: Delayed, keys: Any, timeout_ms: int) -> bool:
        self.completed[operation] = 0
        return super().try_complete_else_watch(operation, keys, timeout_ms)

    @property
    def watched_keys(self) -> int:
        return len(self._watched)

    def _complete(self, operation: Delayed, *, expired: bool) -> None:
        self.completed[operation] += 1
        assert self.completed[operation] == 1, "completed twice"
        super()._complete(operation, expired=expired)


class History:
    """One broker whose partitions are led, followed, stopped and lost while requests wait on them."""

    def __init__(self) -> None:
        self.world = World(lag_time_max_ms=100)
        hosted = self.world.replicas.hosted
        hosted.produces, hosted.fetches, hosted.deletions = (Counting(self.world) for _ in range(3))
        self.purgatories = (hosted.produces, hosted.fetches, hosted.deletions)
        self.epoch = 0
        self.waiting: list[Any] = []
        self.world.replicas.start()
        self.world.tell(self.world.order(T0), self.world.order(T1))

    def do(self, step: tuple[Any, ...]) -> None:
        replicas = self.world.replicas
        match step:
            case "produce", tp, wait:
                self._note(produce(self.world, acks=-1, tp=tp, timeout_ms=wait))
            case "consume", tps, offset, wait:
                asks = [PartitionFetch(tp, offset, 10**6) for tp in dict.fromkeys(tps)]
                self._note(fetch_once(replicas, FetchParams(wait, 1, 10**6), asks))
            case "follow", tp, follower, offset, wait:
                asks = [PartitionFetch(tp, offset, 10**6, log_start_offset=0)]
                self._note(fetch_once(replicas, FetchParams(wait, 1, 10**6, replica_id=follower), asks))
            case "delete", tp, offset, wait:
                self.deleted = replicas.lookups.delete_records(tp, offset)
                self._note(replicas.lookups.all_deleted([self.deleted], wait))
            case "lead", tp, leader:
                self.epoch += 1
                order = self.world.order(tp, leader=leader, leader_epoch=self.epoch, partition_epoch=self.epoch)
                self.world.tell(order)
            case "stop", tp, delete:
                replicas.requests.stop_replicas(StopReplica(1, 1, -1, (StopReplicaPartition(tp, -1, delete),)))
            case "offline", tp:
                replicas.requests.take_offline([tp])
            case "answer", agreed if self.world.submitted:
                change = self.world.submitted.pop(0)
                change.accept() if agreed else change.callback(IsrChangeResult(REFUSED))
            case "pass", ms:
                self.world.advance(ms)

    def _note(self, outcome: Any) -> None:
        if outcome is not None and not isinstance(outcome, list):
            self.waiting.append(outcome)

    def watched(self) -> int:
        return sum(p.watched_keys for p in self.purgatories)


REFUSED = ErrorCode.INELIGIBLE_REPLICA


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(steps, max_size=40))
def test_every_operation_is_completed_once(history: list[tuple[Any, ...]]) -> None:
    told = History()
    for step in history:
        told.do(step)
        told.world.advance(0)  # a follower is answered in the next turn of the loop
        unanswered = sum(not pending.done() for pending in told.waiting)
        assert sum(p.waiting for p in told.purgatories) == unanswered, "who waits is counted"
    told.world.replicas.close()
    assert all(pending.done() for pending in told.waiting)
    assert all(count == 1 for p in told.purgatories for count in p.completed.values())
    assert told.watched() == 0, "nothing is left behind under any key"
    assert all(timer.cancelled for p in told.purgatories for timer in p.timers.begun), "nor any timer"


def test_a_waiting_operation_is_woken_by_each_thing_it_waits_for() -> None:
    """The history above would not notice operations that always time out; here the clock stands still."""
    told = History()
    told.do(("produce", T0, 10_000))
    told.do(("consume", [T0], 0, 10_000))
    told.do(("follow", T0, 2, 1, 10_000))
    produced, consumed, followed = told.waiting
    follower_fetch(told.world, 2, 1, log_start_offset=0)
    follower_fetch(told.world, 3, 1, log_start_offset=0)
    assert produced.done(), "the watermark reached it"
    assert consumed.done(), "and with it what consumers may read"
    assert not followed.done()
    told.do(("lead", T0, 2))
    told.world.advance(0)  # a follower is answered in the next turn of the loop
    assert followed.done(), "leadership is gone"


def test_a_deletion_waits_for_every_living_replica() -> None:
    told = History()
    told.do(("produce", T0, 0))
    for follower in (2, 3):
        follower_fetch(told.world, follower, 1, log_start_offset=0)
    told.do(("delete", T0, 1, 10_000))
    (pending,) = told.waiting
    follower_fetch(told.world, 2, 1, log_start_offset=1)
    assert not pending.done()
    told.world.hear((1, 2))
    follower_fetch(told.world, 2, 1, log_start_offset=1)
    told.world.replicas.hosted.watermark_moved(told.world.partition())
    assert pending.done(), "who is dead is not waited for"
    assert told.deleted.low_watermark == 1
