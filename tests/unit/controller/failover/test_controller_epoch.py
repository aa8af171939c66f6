"""The controller's epoch never decreases, whatever happens to its znode while brokers run."""

from collections.abc import Callable

from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.znodes import controller as znode
from logyard.broker.znodes import partition_state
from logyard.broker.znodes import topics as topic_znode
from tests.support.controller_world import World


def epoch(world: World) -> int:
    return znode.decode_epoch(world.read(znode.EPOCH_PATH) or b"")


async def elect_again(world: World, times: int) -> None:
    for _ in range(times):
        world.remove(znode.PATH)
        await world.settle()


async def test_after_a_deleted_epoch_znode_epochs_continue(world: World) -> None:
    await elect_again(world, 3)
    assert epoch(world) == 4
    world.remove(znode.EPOCH_PATH)
    world.make(topic_znode.topic_path("planted"), world.topic_data([(1, 2)]))
    await world.settle()
    assert epoch(world) == 5
    assert world.state("planted") == PartitionState(1, 0, (1, 2), 5)
    assert {broker.controller_epoch for broker in world.brokers.values()} == {5}


async def test_after_an_epoch_was_set_back_epochs_continue(world: World) -> None:
    await elect_again(world, 3)
    world.set(znode.EPOCH_PATH, b"0")
    world.make(topic_znode.topic_path("planted"), world.topic_data([(1, 2)]))
    await world.settle()
    assert epoch(world) == 5
    assert world.state("planted") == PartitionState(1, 0, (1, 2), 5)


async def test_partition_states_keep_epochs_that_no_broker_knows(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.make(topic_znode.topic_path("t"), world.topic_data([(1,)]))
    world.make(topic_znode.partition_path("t", 0))
    state = PartitionState(1, 7, (1,), 9)
    world.make(partition_state.path(TopicPartition("t", 0)), partition_state.encode(state))
    world.make(topic_znode.topic_path("planted"), world.topic_data([(1,)]))
    await world.start(1)
    assert epoch(world) == 10
    assert world.state("planted") == PartitionState(1, 0, (1,), 10)


async def test_the_epoch_exceeds_what_another_broker_has_seen(world: World) -> None:
    """The new controller does not know the later epoch; a broker that refuses it does."""
    world.brokers[3].controller_epoch = 40
    world.remove(znode.EPOCH_PATH)
    await elect_again(world, 1)
    assert epoch(world) > 40
    assert {broker.controller_epoch for broker in world.brokers.values()} == {epoch(world)}
    await world.make_topic("t", (3, 1))
    assert world.state("t") == PartitionState(3, 0, (3, 1), epoch(world))


async def test_a_former_controller_does_not_raise_the_epoch(world: World) -> None:
    """Refused because of a later epoch, it finds that there is a later controller, and writes nothing."""
    before = world.controller
    world.brokers[2].controller_epoch = 9
    world.set(znode.EPOCH_PATH, b"9")
    await world.make_topic("t", (2, 1))
    assert epoch(world) == 10
    assert world.state("t") is not None
    assert before.runner.epoch in (0, 10)


async def test_an_impossible_epoch_of_a_broker_does_not_raise_epochs_for_ever(world: World) -> None:
    """After one wrong request to one broker, that broker refuses its controller, as in Apache Kafka, and the others are
    led on."""
    world.brokers[3].controller_epoch = 2**31 - 1
    await elect_again(world, 1)
    await world.make_topic("t", (1, 2))
    assert world.state("t") == PartitionState(1, 0, (1, 2), epoch(world))
    assert {world.brokers[each].controller_epoch for each in (1, 2)} == {epoch(world)}
    assert epoch(world) < 2**30


async def test_a_state_with_an_impossible_epoch_is_ignored(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.make(topic_znode.topic_path("t"), world.topic_data([(1,)]))
    world.make(topic_znode.partition_path("t", 0))
    state = PartitionState(1, 7, (1,), 2**31 - 1)
    world.make(partition_state.path(TopicPartition("t", 0)), partition_state.encode(state))
    await world.start(1)
    assert epoch(world) == 1
    world.set(partition_state.path(TopicPartition("t", 0)), b"the world checks that none is of a later epoch")
