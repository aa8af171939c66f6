"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords (facts §10, §11, §15)."""

from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import DeleteRecordsResult, EpochQuery, Isolation, OffsetQuery
from tests.support.disk_logs import NOW_MS, batch
from tests.support.logs import transactional
from tests.support.replica_world import T0, T1, World, follower_fetch, produce


@pytest.fixture
def world() -> World:
    """Broker 1 leads flights-0 with broker 2; records at 0, 1, 2 written at times 100, 300, 200; 2 committed."""
    world = World()
    world.tell(world.order(replicas=(1, 2), leader_epoch=3))
    for timestamp in (100, 300, 200):
        world.replicas.producing.append(
            [(T0, batch(1, timestamp=timestamp))], acks=1, timeout_ms=0, origin=Origin.CLIENT
        )
    follower_fetch(world, 2, 2, log_start_offset=0)
    return world


def listed(world: World, queries: Any, isolation: Any) -> Any:
    """The answer of ListOffsets; the thread's work is done here if there is any."""
    answers = world.replicas.lookups.list_offsets(queries, isolation)
    if isinstance(answers, list):
        return answers
    assert not answers.done()
    [(work, finished)] = world.blocked
    world.blocked.clear()
    finished.set_result(work())
    return answers.result()


def ask(
    world: World, timestamp: int, isolation: Any = Isolation.READ_UNCOMMITTED, tp: TopicPartition = T0, **fields: Any
) -> Any:
    [answer] = listed(world, [OffsetQuery(tp, timestamp, **fields)], isolation)
    return answer.error if answer.error else (answer.timestamp, answer.offset, answer.leader_epoch)


def test_latest_and_earliest(world: World) -> None:
    assert ask(world, -1) == (-1, 2, 3)
    assert ask(world, -1, Isolation.LOG_END) == (-1, 3, 3)
    world.log(T0).append_as_leader(transactional(9, 0), 3, now_ms=NOW_MS)
    follower_fetch(world, 2, 4)
    assert ask(world, -1) == (-1, 4, 3)
    assert ask(world, -1, Isolation.READ_COMMITTED) == (-1, 3, 3)
    assert ask(world, -2) == ask(world, -4) == (-1, 0, 3)
    assert ask(world, -5) == (-1, -1, -1)


def test_by_time_only_what_is_committed(world: World) -> None:
    assert ask(world, 50) == (100, 0, 3)
    assert ask(world, 250) == (300, 1, 3)
    assert ask(world, 301) == (-1, -1, -1)
    assert ask(world, -3) == (300, 1, 3)
    follower_fetch(world, 2, 1)
    assert ask(world, 150, Isolation.READ_UNCOMMITTED) == (300, 1, 3)


def test_segments_are_searched_in_a_thread_the_rest_is_known(world: World) -> None:
    found = [listed(world, [OffsetQuery(T0, at)], Isolation.READ_UNCOMMITTED) for at in (-1, 250, -2, -3, 301)]
    assert [answer.offset for [answer] in found] == [2, 1, 0, 1, -1]
    assert isinstance(world.replicas.lookups.list_offsets([OffsetQuery(T0, -1)], Isolation.LOG_END), list)


def test_a_new_leader_does_not_know_yet_what_is_committed(world: World) -> None:
    world.tell(world.order(replicas=(1, 2), leader_epoch=4, partition_epoch=1))
    assert ask(world, -1) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(world, -1, Isolation.LOG_END) == (-1, 3, 4)
    assert ask(world, 50) == (100, 0, 3)
    assert ask(world, 301) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(world, -2) == (-1, 0, 3)
    follower_fetch(world, 2, 3)
    assert ask(world, -1) == (-1, 3, 4)


def test_list_offsets_refuses(world: World) -> None:
    assert ask(world, -1, tp=TopicPartition("none", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(world, -1, leader_epoch=2) is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(world, -1, leader_epoch=4) is ErrorCode.UNKNOWN_LEADER_EPOCH
    world.tell(world.order(leader=2, replicas=(1, 2), leader_epoch=4))
    assert ask(world, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    answers = world.replicas.lookups.list_offsets([OffsetQuery(T0, -2)], Isolation.LOG_END, only_leader=False)
    assert isinstance(answers, list)
    assert answers[0].offset == 0


def test_ends_of_epochs(world: World) -> None:
    world.tell(world.order(replicas=(1, 2), leader_epoch=7, partition_epoch=1))

    def end(epoch: int, current: Any = -1) -> Any:
        answer = world.replicas.lookups.offsets_for_leader_epoch([EpochQuery(T0, epoch, current)])[0]
        return answer.error if answer.error else (answer.epoch, answer.end_offset)

    assert [end(e) for e in (-1, 2, 3, 5, 7, 8)] == [(-1, -1), (2, 0), (3, 3), (3, 3), (7, 3), (-1, -1)]
    assert [end(3, current) for current in (6, 7, 8)] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        (3, 3),
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]


class Deleting:
    """The result of one deletion, which may have to wait."""

    def __init__(self, result: DeleteRecordsResult, pending: Any) -> None:
        self._result, self._pending = result, pending

    def done(self) -> bool:
        return self._pending is None or self._pending.done()

    def told(self) -> tuple[ErrorCode, int]:
        assert self.done()
        return self._result.error, self._result.low_watermark


def delete(world: World, offset: int, tp: TopicPartition = T0, timeout_ms: int = 100, **fields: Any) -> Deleting:
    lookups = world.replicas.lookups
    result = lookups.delete_records(tp, offset, **fields)
    return Deleting(result, lookups.all_deleted([result], timeout_ms))


def test_deletion_waits_for_living_replicas(world: World) -> None:
    pending = delete(world, 2)
    assert world.log(T0).log_start_offset == 2
    follower_fetch(world, 2, 2, log_start_offset=1)
    assert not pending.done()
    follower_fetch(world, 2, 2, log_start_offset=2)
    assert pending.told() == (ErrorCode.NONE, 2)


def test_deletions_of_many_partitions_wait_together(world: World) -> None:
    world.tell(world.order(T1, replicas=(1, 2), leader_epoch=3))
    produce(world, tp=T1)
    follower_fetch(world, 2, 1, tp=T1, log_start_offset=0)
    lookups = world.replicas.lookups
    results = [lookups.delete_records(T0, 2), lookups.delete_records(T1, 1)]
    pending = lookups.all_deleted(results, 100)
    assert pending is not None
    follower_fetch(world, 2, 1, tp=T1, log_start_offset=1)
    assert ([result.waits for result in results], pending.done()) == ([True, False], False)
    follower_fetch(world, 2, 2, log_start_offset=2)
    assert pending.done()
    assert [(result.error, result.low_watermark) for result in results] == [(ErrorCode.NONE, 2), (ErrorCode.NONE, 1)]


def test_what_was_deleted_before_all_were_asked_for_is_not_waited_for(world: World) -> None:
    """A request of many partitions is carried out in portions: followers fetch meanwhile, and leaders change."""
    result = world.replicas.lookups.delete_records(T0, 2)
    assert result.waits
    follower_fetch(world, 2, 2, log_start_offset=2)
    assert world.replicas.lookups.all_deleted([result], 100) is None
    assert (result.error, result.low_watermark) == (ErrorCode.NONE, 2)
    follower_fetch(world, 2, 3, log_start_offset=2)
    result = world.replicas.lookups.delete_records(T0, 3)
    assert result.waits
    world.tell(world.order(leader=2, replicas=(1, 2), leader_epoch=4))
    assert world.replicas.lookups.all_deleted([result], 100) is None
    assert (result.error, result.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_deletion_does_not_wait_for_the_dead(world: World) -> None:
    world.hear([1])
    assert delete(world, 1).told() == (ErrorCode.NONE, 1)


def test_a_deletion_stops_waiting_for_a_dead_broker(world: World) -> None:
    pending = delete(world, 2)
    world.hear([1])
    assert pending.told() == (ErrorCode.NONE, 2)


def test_a_deletion_that_times_out_is_done_on_the_leader(world: World) -> None:
    pending = delete(world, -1)
    world.advance(100)
    assert pending.told() == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert world.log(T0).log_start_offset == 2
    assert delete(world, -1, timeout_ms=0).told() == (ErrorCode.REQUEST_TIMED_OUT, 0)


def test_refused_deletions_of_records(world: World) -> None:
    assert delete(world, 3).told() == delete(world, -2).told() == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(world, 0, T1).told() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    internal = TopicPartition("__consumer_offsets", 0)
    assert delete(world, 0, internal).told() == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    world.log(T0).config = TopicConfig(cleanup_policy=frozenset({"compact"}))
    assert delete(world, 1).told() == (ErrorCode.POLICY_VIOLATION, -1)


def test_deletion_loses_its_leader(world: World) -> None:
    pending = delete(world, 2)
    world.tell(world.order(leader=2, replicas=(1, 2), leader_epoch=4))
    assert pending.told() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_deleting_wakes_a_fetch_that_stood_before_the_start(world: World) -> None:
    follower_fetch(world, 2, 3, log_start_offset=0)
    produce(world)
    delete(world, 2)
    assert follower_fetch(world, 2, 1)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
