"""Brokers that lose log directories, or cannot open logs for a while."""

from logyard.broker.model import TopicPartition
from logyard.broker.znodes import log_dir_events
from logyard.broker.znodes.ops import Create
from tests.support.controller_world import World
from tests.support.controller_world import known_state as state

TP = TopicPartition("t", 0)


async def test_failed_directory(world: World) -> None:
    await world.make_topic("t", (3, 1), (3, 2))
    world.brokers[3].failed_partitions = {TP}
    world.write(Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(3), sequential=True))
    await world.settle()
    assert (state(world).leader, state(world).isr) == (1, (1,))
    assert state(world, "t", 1).leader == 3
    assert world.tree.children(log_dir_events.PATH) == []
    assert world.brokers[2].metadata[TP]["offline_replicas"] == [3]
    # the broker comes back with the directory mended
    await world.kill(3)
    await world.start(3)
    assert world.brokers[2].metadata[TP]["offline_replicas"] == []


async def test_replicas_that_could_not_be_opened_for_a_while(world: World) -> None:
    """A broker ran out of file descriptors. They counted as offline until it was restarted, and had no leader."""
    await world.make_topic("t", (3,), (1, 3))
    world.brokers[3].failed_partitions = {TP, TopicPartition("t", 1)}
    world.write(Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(3), sequential=True))
    await world.settle()
    assert (state(world).leader, state(world, "t", 1).isr) == (-1, (1,))
    world.brokers[3].failed_partitions = set()
    world.write(Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(3), sequential=True))
    await world.settle()
    assert (state(world).leader, state(world).isr) == (3, (3,))
    assert [world.brokers[2].metadata[TopicPartition("t", n)]["offline_replicas"] for n in (0, 1)] == [[], []]
    await world.grow_isr("t", 1, 1, 3)
    await world.kill(1)
    assert state(world, "t", 1).leader == 3


async def test_an_unreadable_notification_is_removed(world: World) -> None:
    world.write(Create(log_dir_events.SEQUENCE_PREFIX, b"rubbish", sequential=True))
    await world.settle()
    assert world.tree.children(log_dir_events.PATH) == []
