"""A dead broker concerns all partitions that it has a replica of: they are looked at some in each turn of the loop."""

from logyard.broker.model import TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.replication.isr import RemoteReplica
from logyard.broker.replication.partition import Partition
from tests.support.replica_world import World


class Counted(Partition):
    """A partition that counts how often one is told of a dead broker."""

    __slots__ = ()
    told = 0

    def broker_gone(self, broker_id: int) -> bool:
        Counted.told += 1
        if self.tp.partition == 1:
            raise ValueError("a bug")
        return super().broker_gone(broker_id)


def many(count: int) -> World:
    world = World()
    hosted = world.replicas.hosted
    for number in range(count):
        partition = hosted.partitions[TopicPartition("t", number)] = Counted(TopicPartition("t", number), hosted.ports)
        partition.is_leader = True
        partition.remotes = {broker: RemoteReplica(broker) for broker in (2, 3)}
    Counted.told = 0
    return world


def test_a_dead_broker_is_told_to_some_partitions_at_a_time_and_a_bug_in_one_concerns_no_other() -> None:
    world = many(2 * AT_ONCE + 1)
    world.hear((1, 2))
    assert Counted.told <= AT_ONCE
    world.advance(0)
    assert Counted.told == 2 * AT_ONCE + 1


def test_nothing_is_looked_at_behind_the_end() -> None:
    world = many(AT_ONCE + 1)
    world.hear((1, 2))
    told = Counted.told
    world.replicas.close()
    world.advance(0)
    assert Counted.told == told
