"""LeaderAndIsr, StopReplica, UpdateMetadata and failing directories (facts §9)."""

import uuid

import pytest

from logyard.broker import tasks
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.metadata.updates import UpdateMetadata
from logyard.broker.model import TopicPartition
from tests.support.replica_world import (
    T0,
    T1,
    ControlledWorld,
    Leadership,
    World,
    errors,
    follower_fetch,
    produce,
    stop,
)


@pytest.fixture
def world() -> ControlledWorld:
    return ControlledWorld()


def test_broker_epochs(world: ControlledWorld) -> None:
    told = [world.tell(world.order(), broker_epoch=e).error for e in (6, 7, 8, -1)]
    assert told == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE]
    assert stop(world, broker_epoch=6).error is ErrorCode.STALE_BROKER_EPOCH
    update = UpdateMetadata(5, 9, 6, (), ())
    assert world.replicas.requests.update_metadata(update) is ErrorCode.STALE_BROKER_EPOCH
    assert world.metadata.controller_id == 1


def test_controller_epochs_are_one_for_all_three_requests(world: ControlledWorld) -> None:
    assert world.tell(world.order(), controller_epoch=5).error is ErrorCode.NONE
    assert world.tell(world.order(leader_epoch=9), controller_epoch=4).error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert stop(world, controller_epoch=4).error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert world.replicas.requests.update_metadata(UpdateMetadata(5, 4, -1, (), ())) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert world.replicas.requests.update_metadata(UpdateMetadata(5, 6, -1, (), ())) is ErrorCode.NONE
    assert stop(world, controller_epoch=5).error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert world.partition(T0).leader_epoch == 0


def test_leader_epochs(world: ControlledWorld) -> None:
    assert errors(world.tell(world.order(leader_epoch=3))) == [ErrorCode.NONE]
    again = [errors(world.tell(world.order(leader_epoch=e)))[0] for e in (2, 3, 4)]
    assert again == [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.NONE]


def test_not_one_of_the_replicas(world: ControlledWorld) -> None:
    told = errors(world.tell(world.order(leader=2, replicas=(2, 3))))
    assert told == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.replicas.partition(T0) is None


def test_the_epochs_start_is_recorded_though_nothing_is_appended(world: ControlledWorld) -> None:
    world.tell(world.order(leader_epoch=3))
    produce(world, count=4)
    world.tell(world.order(leader_epoch=5, partition_epoch=1))
    assert world.log(T0).epochs.entries == ((3, 0), (5, 4))
    assert world.partition(T0).epoch_start == 4


def test_followers_ends_are_forgotten_by_a_new_leader_only(world: ControlledWorld) -> None:
    world.tell(world.order(leader_epoch=3))
    produce(world)
    follower_fetch(world, 2, 1)
    world.tell(world.order(leader_epoch=4, partition_epoch=1))
    assert world.partition(T0).remotes[2].log_end_offset == 1
    world.tell(world.order(leader=2, leader_epoch=5, partition_epoch=2))
    world.tell(world.order(leader_epoch=6, partition_epoch=3))
    assert world.partition(T0).remotes[2].log_end_offset == -1


def test_a_smaller_partition_epoch_changes_nothing(world: ControlledWorld) -> None:
    world.tell(world.order(isr=(1, 2), partition_epoch=5))
    assert errors(world.tell(world.order(leader_epoch=1, isr=(1,), partition_epoch=4))) == [ErrorCode.NONE]
    partition = world.partition(T0)
    assert (partition.leader_epoch, partition.isr.committed, partition.partition_epoch) == (0, (1, 2), 5)


def test_an_isr_of_one_commits_what_is_there(world: ControlledWorld) -> None:
    world.tell(world.order())
    produce(world)
    assert world.log(T0).high_watermark == 0
    world.tell(world.order(isr=(1,), leader_epoch=1, partition_epoch=1))
    assert world.log(T0).high_watermark == 1


def test_following(world: ControlledWorld) -> None:
    world.tell(world.order())
    produce(world)
    world.fetching.log.clear()
    world.tell(world.order(leader=2, leader_epoch=1))
    partition = world.partition(T0)
    assert (partition.is_leader, partition.leader, partition.isr.committed) == (False, 2, ())
    assert world.fetching.log == [("stop", T0), ("start", T0, 2, 1)]
    world.tell(world.order(leader=1, leader_epoch=2))
    assert world.fetching.log[2:] == [("stop", T0)]


def test_a_stopped_follower_goes_on_by_an_order_of_the_same_epoch(world: ControlledWorld) -> None:
    """Outside the ISR neither its stop nor its return changes the epoch: refused, it would count as lost for ever."""
    order = world.order(leader=2, leader_epoch=4, isr=(2,))
    world.tell(order)
    assert errors(stop(world)) == [ErrorCode.NONE]
    world.fetching.log.clear()
    assert errors(world.tell(world.order(leader=2, leader_epoch=3, isr=(2,)))) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert world.fetching.log == []
    assert errors(world.tell(order)) == [ErrorCode.NONE]
    assert world.fetching.log == [("stop", T0), ("start", T0, 2, 4)]
    assert errors(world.tell(order)) == [ErrorCode.STALE_CONTROLLER_EPOCH]


def test_a_leader_that_was_stopped_does_not_begin_its_epoch_again(world: ControlledWorld) -> None:
    world.tell(world.order(leader_epoch=4))
    produce(world)
    stop(world)
    assert errors(world.tell(world.order(leader_epoch=4))) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert world.partition(T0).epoch_start == 0


def test_an_unknown_leader_is_not_followed_but_the_log_is_there(world: ControlledWorld) -> None:
    """KAFKA-1647: the high watermark has to be checkpointed all the same."""
    world.logs.checkpoint[T0] = 0
    world.tell(world.order(leader=9, leader_epoch=4, replicas=(1, 9)))
    assert world.logs.get(T0) is not None
    assert {tp: p.log.high_watermark for tp, p in world.replicas.hosted.partitions.items() if p.log} == {T0: 0}
    assert (world.partition(T0).leader_epoch, world.fetching.log) == (-1, [])


def test_the_watermark_comes_back_from_the_checkpoint_within_bounds(world: ControlledWorld) -> None:
    world.tell(world.order())
    for _ in range(3):
        produce(world)
    for saved, restored in [(2, 2), (9, 3)]:
        later = World()
        later.logs.logs = world.logs.logs
        later.logs.checkpoint[T0] = saved
        later.log(T0).high_watermark = 0
        later.tell(later.order(leader=2))
        assert later.log(T0).high_watermark == restored


def test_the_checkpoint_is_ignored_once_the_log_is_in_use(world: ControlledWorld) -> None:
    """The log was cut and filled again since then: the watermark at the start tells nothing of that."""
    world.logs.checkpoint[T0] = 3
    world.tell(world.order(leader=2))
    log = world.log(T0)
    world.tell(world.order(leader=1, leader_epoch=1))
    for _ in range(3):
        produce(world)
    assert log.high_watermark == 0
    world.tell(world.order(leader=2, leader_epoch=2))
    assert log.high_watermark == 0


def test_topic_ids(world: ControlledWorld) -> None:
    mine, other = uuid.UUID(int=1), uuid.UUID(int=2)
    world.tell(world.order(), topic_ids={"flights": mine})
    assert world.log(T0).topic_id == mine
    answer = world.tell(world.order(leader_epoch=1), topic_ids={"flights": other})
    assert errors(answer) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert answer.topic_ids == {"flights": other}
    assert errors(world.tell(world.order(leader_epoch=1))) == [ErrorCode.NONE]


def test_a_log_of_an_earlier_topic_of_that_name(world: ControlledWorld) -> None:
    world.tell(world.order(), topic_ids={"flights": uuid.UUID(int=1)})
    later = World()
    later.logs.logs = world.logs.logs
    told = errors(later.tell(later.order(), topic_ids={"flights": uuid.UUID(int=2)}))
    assert told == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert later.replicas.partition(T0) is None
    assert not later.replicas.hosted.offline


def test_an_id_that_comes_late_is_adopted(world: ControlledWorld) -> None:
    mine = uuid.UUID(int=1)
    world.tell(world.order(leader=2))
    assert errors(world.tell(world.order(leader=2), topic_ids={"flights": mine})) == [ErrorCode.NONE]
    assert world.log(T0).topic_id == mine
    assert world.fetching.log[-1] == ("ids", T0, mine)
    assert errors(world.tell(world.order(leader=2))) == [ErrorCode.NONE]
    assert len(world.fetching.log) == 4
    assert errors(world.tell(world.order(leader=2), topic_ids={"flights": mine})) == [ErrorCode.STALE_CONTROLLER_EPOCH]


def test_an_error_of_one_listener_keeps_no_news_from_others(world: ControlledWorld) -> None:
    """A coordinator that does not hear that it leads refuses its clients until the next election."""
    failed, second = tasks.failures["news of leadership"], Leadership()

    class Failing(Leadership):
        def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
            raise ValueError("planted")

        on_follower = on_leader

        def on_deleted(self, tp: TopicPartition) -> None:
            raise ValueError("planted")

    world.replicas.requests.add_listener(Failing())
    world.replicas.requests.add_listener(second)
    assert errors(world.tell(world.order(), world.order(T1))) == [ErrorCode.NONE] * 2
    world.tell(world.order(leader=2, leader_epoch=1))
    stop(world, delete=True)
    world.replicas.requests.take_offline([T1])
    assert second.heard == world.leadership.heard
    assert [(what, tp) for what, tp, *_ in second.heard] == [
        ("leader", T0),
        ("leader", T1),
        ("follower", T0),
        ("deleted", T0),
        ("follower", T1),
    ]
    assert tasks.failures["news of leadership"] == failed + 5


def test_the_coordinators_hear_of_changes_of_leadership(world: ControlledWorld) -> None:
    world.tell(world.order(), world.order(T1, leader=2))
    world.tell(world.order(leader_epoch=1), world.order(T1, leader=1, leader_epoch=1))
    world.tell(world.order(leader=3, leader_epoch=2))
    stop(world, T1, delete=True)
    assert world.leadership.heard == [
        ("leader", T0, 0),
        ("follower", T1, 0),
        ("leader", T1, 1),
        ("follower", T0, 2),
        ("deleted", T1),
    ]


def test_stop_without_deletion_only_stops_fetching(world: ControlledWorld) -> None:
    world.tell(world.order(leader=2))
    world.fetching.log.clear()
    assert errors(stop(world)) == [ErrorCode.NONE]
    assert world.fetching.log == [("stop", T0)]
    assert world.replicas.partition(T0) is not None


@pytest.mark.parametrize(("epoch", "error"), [(2, 74), (3, 0), (4, 0), (-1, 0), (-2, 0)])
def test_stop_and_leader_epochs(world: ControlledWorld, epoch: int, error: ErrorCode) -> None:
    world.tell(world.order(leader_epoch=3))
    assert errors(stop(world, leader_epoch=epoch, delete=True)) == [error]
    assert (world.logs.get(T0) is None) == (error == 0)


def test_a_deletion_answers_waiting_requests(world: ControlledWorld) -> None:
    world.tell(world.order())
    pending = produce(world, acks=-1)
    stop(world, leader_epoch=-2, delete=True)
    assert pending.result()[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.logs.deleted == [T0]


def test_a_log_that_was_never_led_since_start_is_deleted_too(world: ControlledWorld) -> None:
    world.tell(world.order())
    later = World()
    later.logs.logs = world.logs.logs
    assert errors(stop(later, delete=True)) == [ErrorCode.NONE]
    assert later.logs.get(T0) is None
    assert errors(stop(later, TopicPartition("never", 0), delete=True)) == [ErrorCode.NONE]


def test_a_log_that_could_not_be_opened_is_deleted_too(world: ControlledWorld) -> None:
    """Else a topic that is made anew under its name could have no replica here."""
    world.logs.broken.add(T0)
    assert errors(stop(world, leader_epoch=-2, delete=True)) == [ErrorCode.NONE]
    assert world.logs.deleted == [T0]


async def test_a_directory_that_fails_on_creation(world: ControlledWorld) -> None:
    world.logs.failing[T0], world.logs.is_complete = StorageError("no space"), False
    assert errors(world.tell(world.order(), world.order(T1))) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert errors(world.tell(world.order(leader_epoch=1))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert errors(stop(world, delete=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (await world.replicas.gauges())["offline_replica_count"] == 1


def test_an_unexpected_error_affects_one_partition_of_a_request(world: ControlledWorld) -> None:
    world.logs.failing[T0] = KeyError(1)
    assert errors(world.tell(world.order(), world.order(T1))) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    world.logs.failing[T0] = FileNotFoundError()
    assert errors(world.tell(world.order(leader=2))) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_directory_that_fails_later(world: ControlledWorld) -> None:
    world.tell(world.order())
    pending = produce(world, acks=-1)
    world.replicas.requests.take_offline([T0])
    assert pending.result()[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(world)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.leadership.heard[-1] == ("follower", T0, 0)


def test_a_changed_min_isr_advances_the_high_watermark(world: ControlledWorld) -> None:
    world.config = TopicConfig(min_insync_replicas=2)
    world.tell(world.order(isr=(1,)), world.order(T1, isr=(1,)))
    produce(world)
    produce(world, tp=T1)
    world.config = TopicConfig()
    world.replicas.topic_configs_changed(["other"])
    assert world.log(T0).high_watermark == 0
    world.replicas.topic_configs_changed(None)
    assert [world.log(tp).high_watermark for tp in (T0, T1)] == [1, 1]


async def test_gauges(world: ControlledWorld) -> None:
    world.tell(world.order(isr=(1,)), world.order(T1, leader=2))
    gauges = await world.replicas.gauges()
    assert (gauges["leader_count"], gauges["partition_count"], gauges["under_replicated_partitions"]) == (1, 2, 1)
    assert (gauges["at_min_isr_partition_count"], gauges["under_min_isr_partition_count"]) == (1, 0)


def test_an_order_repeated_after_a_deletion_creates_nothing(world: ControlledWorld) -> None:
    """The controller sent it twice, and the first copy waited here for something else."""
    topic = {"flights": uuid.UUID(int=7)}
    order = world.order(leader_epoch=3)
    world.tell(order, topic_ids=topic)
    stop(world, delete=True)
    assert errors(world.tell(order, topic_ids=topic)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert (world.logs.get(T0), world.replicas.partition(T0)) == (None, None)
    again = world.order(leader_epoch=4)
    assert errors(world.tell(again, topic_ids=topic)) == [ErrorCode.NONE], "it was moved back here"
    stop(world, delete=True)
    other = {"flights": uuid.UUID(int=8)}
    assert errors(world.tell(world.order(), topic_ids=other)) == [ErrorCode.NONE], "another topic of that name"
