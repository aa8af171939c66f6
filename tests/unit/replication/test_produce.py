"""Produce on a leader: acks, the minimum ISR, waiting for the high watermark (facts §10)."""

import dataclasses

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from tests.support.disk_logs import batch
from tests.support.replica_world import T0, T1, Pending, World, follower_fetch, produce


@pytest.fixture
def world() -> World:
    world = World()
    world.tell(world.order())
    return world


def test_acks_one_answers_at_once_with_the_offsets(world: World) -> None:
    first, second = produce(world, count=3)[0], produce(world)[0]
    assert (first.error, first.base_offset, second.base_offset) == (ErrorCode.NONE, 0, 3)
    assert first.log_start_offset == 0


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_other_acks_are_refused_and_nothing_is_written(world: World, acks: int) -> None:
    assert [r.error for r in produce(world, acks=acks)] == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert world.log(T0).log_end_offset == 0


def test_a_lone_replica_commits_at_once() -> None:
    world = World()
    world.tell(world.order(replicas=(1,)))
    result = produce(world, acks=-1)
    assert result[0].error == ErrorCode.NONE
    assert world.log(T0).high_watermark == 1


def test_acks_all_waits_for_every_member_of_the_isr(world: World) -> None:
    pending = produce(world, acks=-1, count=2)
    follower_fetch(world, 2, 2)
    assert not pending.done()
    follower_fetch(world, 3, 2)
    assert pending.result()[0].error == ErrorCode.NONE
    assert pending.result()[0].base_offset == 0
    assert world.log(T0).high_watermark == 2


def test_acks_all_times_out_and_the_record_stays(world: World) -> None:
    pending = produce(world, acks=-1)
    world.advance(999)
    assert not pending.done()
    world.advance(1)
    assert pending.result()[0].error == ErrorCode.REQUEST_TIMED_OUT
    assert world.log(T0).log_end_offset == 1


def test_a_timeout_of_zero_does_not_wait(world: World) -> None:
    assert produce(world, acks=-1, timeout_ms=0)[0].error == ErrorCode.REQUEST_TIMED_OUT


def test_under_min_isr_nothing_is_written_for_acks_all_only() -> None:
    world = World()
    world.config = TopicConfig(min_insync_replicas=2)
    world.tell(world.order(isr=(1,)))
    assert produce(world, acks=-1)[0].error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.log(T0).log_end_offset == 0
    assert produce(world, acks=1)[0].error == ErrorCode.NONE
    assert world.log(T0).high_watermark == 0, "the watermark stands still under the minimum (3.9)"


def test_the_minimum_is_never_more_than_the_replicas_there_are() -> None:
    world = World()
    world.config = TopicConfig(min_insync_replicas=2)
    world.tell(world.order(replicas=(1,)))
    assert produce(world, acks=-1)[0].error == ErrorCode.NONE


def test_committed_but_the_isr_shrank_below_the_minimum_meanwhile(world: World) -> None:
    world.log(T0).config = TopicConfig(min_insync_replicas=2)
    pending = produce(world, acks=-1)
    follower_fetch(world, 2, 1)
    partition = world.partition(T0)
    world.log(T0).set_high_watermark(1)
    partition.isr.commit((1,))
    world.replicas.hosted.watermark_moved(partition)
    assert pending.result()[0].error == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_leadership_lost_while_waiting(world: World) -> None:
    pending = produce(world, acks=-1)
    world.tell(world.order(leader=2, leader_epoch=1, isr=(2, 3)))
    assert pending.result()[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_the_partition_that_waits_is_held_back(world: World) -> None:
    world.tell(world.order(T1, isr=(1,)), controller_epoch=1)
    pending = world.replicas.producing.append(
        [(T0, batch()), (T1, batch()), (TopicPartition("none", 0), batch())],
        acks=-1,
        timeout_ms=50,
        origin=Origin.CLIENT,
    )
    assert isinstance(pending, Pending)
    world.advance(50)
    assert [r.error for r in pending.result()] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_follower_refuses_and_an_unknown_partition_is_unknown(world: World) -> None:
    world.tell(world.order(T1, leader=2))
    assert produce(world, tp=T1)[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(world, tp=TopicPartition("none", 0))[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_internal_topics_are_for_the_broker_alone(world: World) -> None:
    offsets = TopicPartition("__consumer_offsets", 0)
    world.tell(world.order(offsets))
    assert produce(world, tp=offsets)[0].error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produce(world, tp=offsets, internal_topics=True)[0].error == ErrorCode.NONE


def test_the_logs_refusal_is_answered_with_its_text(world: World) -> None:
    world.log(T0).refuse = ApiError(ErrorCode.CORRUPT_MESSAGE, "crc")
    result = produce(world)[0]
    assert (result.error, result.message, result.base_offset) == (ErrorCode.CORRUPT_MESSAGE, "crc", -1)
    world.log(T0).refuse = StorageError("disk full")
    assert produce(world)[0].error == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_unexpected_error_affects_one_partition(world: World) -> None:
    world.tell(world.order(T1, isr=(1,)))
    world.log(T0).refuse = KeyError(1)
    results = world.replicas.producing.append(
        [(T0, batch()), (T1, batch())], acks=1, timeout_ms=0, origin=Origin.CLIENT
    )
    assert isinstance(results, list)
    assert [r.error for r in results] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


async def test_closing_answers_waiting_requests(world: World) -> None:
    pending = produce(world, acks=-1)
    assert isinstance(pending, Pending)
    world.replicas.close()
    assert pending.result()[0].error == ErrorCode.REQUEST_TIMED_OUT
    assert (await world.replicas.gauges())["delayed_produces"] == 0


def test_changed_settings_count_at_once(world: World) -> None:
    log = world.log(T0)
    log.config = dataclasses.replace(log.config, min_insync_replicas=3)
    world.partition(T0).isr.commit((1, 2))
    assert produce(world, acks=-1)[0].error == ErrorCode.NOT_ENOUGH_REPLICAS
