"""Deletion of topics, its waits and its resumptions (facts §7)."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from logyard.broker.controller.broker_requests.encoding import STOP_REPLICA
from logyard.broker.controller.broker_requests.partition_states import PartitionCodes
from logyard.broker.controller.effects import Schedule
from logyard.broker.controller.events import (
    AlterReassignments,
    CreateTopics,
    DeleteTopics,
    DeletionRetryDue,
    NewTopic,
    ReplicasDeleted,
)
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import configs, delete_topics, log_dir_events, reassignments
from logyard.broker.znodes import topics as topic_znode
from logyard.broker.znodes.ops import Create
from tests.support.controller_world import World

TP = TopicPartition("t", 0)


async def delete(world: World, *names: str) -> list[ErrorCode]:
    outcomes = await world.controller.runner.ask(DeleteTopics(names))
    await world.settle()
    return [outcomes[name].error for name in names]


def traces(world: World, name: str) -> list[str]:
    paths = (topic_znode.topic_path(name), configs.topic_path(name), delete_topics.path(name))
    return [path for path in paths if world.read(path) is not None]


async def test_everything_of_a_topic_is_deleted(world: World) -> None:
    await world.controller.runner.ask(CreateTopics((NewTopic("t", 2, 3),)))
    await world.settle()
    assert await delete(world, "t") == [ErrorCode.NONE]
    assert traces(world, "t") == []
    for broker in world.brokers.values():
        assert broker.metadata == {}
        assert sorted(broker.deleted) == [TP, TopicPartition("t", 1)]
        deletions = [p for r in broker.told(STOP_REPLICA) for t in r["topic_states"] for p in t["partition_states"]]
        assert {p["leader_epoch"] for p in deletions} == {-2}


async def test_settings_that_may_not_be_read_keep_no_topic(world: World) -> None:
    """Neither their own topic nor those that are deleted with it: who may delete them is said by their parent."""
    new = tuple(NewTopic(name, 1, 3, configs={"retention.ms": "7"}) for name in ("secret", "t"))
    await world.controller.runner.ask(CreateTopics(new))
    await world.settle()
    world.controller.zk.refused.add(configs.topic_path("secret"))
    assert await delete(world, "secret", "t") == [ErrorCode.NONE, ErrorCode.NONE]
    assert traces(world, "secret") == []
    assert traces(world, "t") == []


async def test_unknown_and_repeated(world: World) -> None:
    assert await delete(world, "nope") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await world.make_topic("t", (1, 2))
    world.brokers[2].silent = True
    assert await delete(world, "t") == [ErrorCode.NONE]
    assert await delete(world, "t") == [ErrorCode.NONE]
    world.brokers[2].silent = False


async def test_an_id_whose_topic_has_gone_does_not_delete_the_next_of_the_name(world: World) -> None:
    runner = world.controller.runner
    (first,) = await runner.ask(CreateTopics((NewTopic("t", 1, 2),)))
    await world.settle()
    await delete(world, "t")
    (second,) = await runner.ask(CreateTopics((NewTopic("t", 1, 2),)))
    await world.settle()
    outcomes = await runner.ask(DeleteTopics(("t",), {"t": first.topic_id}))
    await world.settle()
    assert outcomes["t"].error is ErrorCode.UNKNOWN_TOPIC_ID
    assert world.topic("t").topic_id == second.topic_id
    outcomes = await runner.ask(DeleteTopics(("t",), {"t": second.topic_id}))
    await world.settle()
    assert (outcomes["t"].error, traces(world, "t")) == (ErrorCode.NONE, [])


async def test_recreated_at_once_under_the_same_name(world: World) -> None:
    runner = world.controller.runner
    for _ in range(3):
        (created,) = await runner.ask(CreateTopics((NewTopic("t", 1, 2),)))
        assert created.error is ErrorCode.NONE
        await runner.ask(DeleteTopics(("t",)))
        while world.read(topic_znode.topic_path("t")) is not None:
            await world.settle()
    (created,) = await runner.ask(CreateTopics((NewTopic("t", 1, 2),)))
    await world.settle()
    assert world.topic("t").topic_id == created.topic_id
    assert world.state("t") is not None


async def test_by_hand_and_unknown_by_hand(world: World) -> None:
    await world.make_topic("t", (1, 2))
    world.make(delete_topics.path("nope"))
    world.make(delete_topics.path("t"))
    await world.settle()
    assert traces(world, "t") == []
    assert world.tree.children(delete_topics.PATH) == []


async def test_disabled(make_world: Callable[..., World]) -> None:
    world = make_world(delete_topic_enable=False)
    await world.start(1)
    await world.make_topic("t", (1,))
    assert await delete(world, "t") == [ErrorCode.TOPIC_DELETION_DISABLED]
    world.make(delete_topics.path("t"))
    await world.settle()
    assert traces(world, "t") == [topic_znode.topic_path("t")]
    world.make(delete_topics.path("t"))
    await world.start(2)
    await world.kill(1)
    assert traces(world, "t") == [topic_znode.topic_path("t")]


async def test_waits_for_a_dead_replica(world: World) -> None:
    await world.make_topic("t", (1, 2, 3))
    await world.kill(3)
    await delete(world, "t")
    assert len(traces(world, "t")) == 2
    assert world.brokers[1].deleted == [TP]
    assert (await world.controller.runner.gauges())["TopicsIneligibleToDeleteCount"] == 1
    await world.start(3)
    assert traces(world, "t") == []
    assert world.brokers[3].deleted == [TP]


async def test_replica_dies_during_deletion(world: World) -> None:
    await world.make_topic("t", (1, 2, 3))
    world.brokers[3].silent = True
    await delete(world, "t")
    assert len(traces(world, "t")) == 2
    await world.kill(3)
    await world.start(3)
    assert traces(world, "t") == []


async def test_failed_deletion_is_tried_again_when_the_broker_restarts(world: World) -> None:
    await world.make_topic("t", (1, 2))
    world.brokers[2].refuse_deletion = True
    await delete(world, "t")
    assert len(traces(world, "t")) == 2
    await world.kill(2)
    await world.start(2)
    assert traces(world, "t") == []


async def test_a_failed_deletion_on_a_live_broker_is_tried_again(world: World) -> None:
    await world.make_topic("t", (1, 2))
    world.brokers[2].refuse_deletion = True
    await delete(world, "t")
    due = [e.event for _, e in world.controller.effects if isinstance(e, Schedule)]
    assert DeletionRetryDue(("t",)) in due
    world.controller.runner.queue.put(DeletionRetryDue(("t",)))
    await world.settle()
    assert len(traces(world, "t")) == 2
    world.brokers[2].refuse_deletion = False
    world.controller.runner.queue.put(DeletionRetryDue(("t",)))
    await world.settle()
    assert traces(world, "t") == []


async def test_an_answer_to_a_brokers_earlier_registration_stops_no_deletion(world: World) -> None:
    """It came after the deletion had begun anew: the replica then counted as not deleted, and its topic stayed."""
    await world.make_topic("t", (1, 2))
    world.brokers[2].silent = True
    await delete(world, "t")
    nothing = PartitionCodes(SimpleNamespace())
    world.controller.runner.queue.put(ReplicasDeleted(2, ErrorCode.STALE_BROKER_EPOCH, [TP], nothing))
    world.controller.runner.queue.put(ReplicasDeleted(2, ErrorCode.NONE, [TP], nothing))
    await world.settle()
    assert traces(world, "t") == []


async def test_replica_on_a_broker_that_never_lived(world: World) -> None:
    await world.make_topic("t", (1, 9))
    await delete(world, "t")
    assert len(traces(world, "t")) == 2
    await world.start(9)
    assert traces(world, "t") == []


async def test_topic_without_any_state(world: World) -> None:
    await world.make_topic("t", (9,))
    await delete(world, "t")
    await world.start(9)
    assert traces(world, "t") == []


async def test_broken_topic_can_be_deleted(world: World) -> None:
    world.make(topic_znode.topic_path("t"), b"{not json")
    await world.settle()
    await delete(world, "t")
    assert traces(world, "t") == []


@pytest.mark.parametrize("steps", range(1, 16))
async def test_controller_dies_after_any_write(make_world: Callable[..., World], steps: int) -> None:
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", (2, 3), (3, 2))
    world.brokers[1].die_after(steps)
    world.make(delete_topics.path("t"))
    await world.settle()
    await world.kill(1)
    assert traces(world, "t") == []


async def test_growth_of_a_topic_under_deletion_is_undone(world: World) -> None:
    await world.make_topic("t", (1, 2))
    await world.kill(2)
    await delete(world, "t")
    topic_id = world.topic("t").topic_id
    world.set(topic_znode.topic_path("t"), world.topic_data([(1, 2), (1, 3)], topic_id))
    await world.settle()
    assert sorted(world.topic("t").partitions) == [0]
    assert world.topic("t").topic_id == topic_id


@pytest.mark.parametrize("by_znode", [False, True])
async def test_deletion_ends_a_move(world: World, by_znode: bool) -> None:
    """A move that never ends does not keep a topic."""
    await world.make_topic("t", (1, 2))
    if by_znode:
        world.make(reassignments.PATH, reassignments.encode({TP: (3, 2)}))
        await world.settle()
    else:
        await world.controller.runner.ask(AlterReassignments(((TP, (3, 2)),)))
    assert (await world.controller.runner.gauges())["ReassigningPartitions"] == 1
    await delete(world, "t")
    assert traces(world, "t") == []
    assert world.tree.read(reassignments.PATH) is None
    assert (await world.controller.runner.gauges())["ReassigningPartitions"] == 0


async def test_the_dead_target_of_a_move_delays_the_deletion(world: World) -> None:
    """As in Kafka, whose controller counts it among the topic's replicas: it may have a part of the records."""
    await world.make_topic("t", (1, 2))
    await world.controller.runner.ask(AlterReassignments(((TP, (3, 2)),)))
    await world.kill(3)
    await delete(world, "t")
    assert len(traces(world, "t")) == 2
    assert (await world.controller.runner.gauges())["TopicsIneligibleToDeleteCount"] == 1
    await world.start(3)
    assert traces(world, "t") == []
    assert world.brokers[3].deleted == [TP]


async def test_a_new_controller_ends_the_move_of_what_is_to_be_deleted(world: World) -> None:
    await world.make_topic("t", (2, 3))
    await world.kill(3)
    await world.controller.runner.ask(AlterReassignments(((TP, (2,)),)))
    await delete(world, "t")
    await world.kill(1)
    await world.start(3)
    assert traces(world, "t") == []
    assert (await world.controller.runner.gauges())["ReassigningPartitions"] == 0


async def test_a_new_controller_waits_for_the_dead_replica_too(world: World) -> None:
    await world.make_topic("t", (2, 3))
    await world.kill(3)
    await delete(world, "t")
    await world.kill(1)
    assert (await world.controller.runner.gauges())["TopicsIneligibleToDeleteCount"] == 1
    assert len(traces(world, "t")) == 2
    await world.start(3)
    assert traces(world, "t") == []


async def test_a_replica_on_a_failed_directory_delays_the_deletion_until_its_broker_restarts(world: World) -> None:
    await world.make_topic("t", (2, 3))
    world.brokers[3].failed_partitions.add(TP)
    notice = Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(3), sequential=True)
    world.write(notice)
    await world.settle()
    await delete(world, "t")
    assert len(traces(world, "t")) == 2
    await world.kill(3)
    await world.start(3)
    assert traces(world, "t") == []


async def test_deleted_and_made_again_and_again_without_a_pause(world: World) -> None:
    ids = set()
    for _ in range(5):
        (created,) = await world.controller.runner.ask(CreateTopics((NewTopic("t", 2, 3),)))
        assert created.error is ErrorCode.NONE
        ids.add(created.topic_id)
        await delete(world, "t")
        assert traces(world, "t") == []
    assert len(ids) == 5


async def test_a_topic_made_while_its_namesake_is_deleted_is_refused_until_it_is_gone(world: World) -> None:
    await world.make_topic("t", (1, 2, 3))
    world.brokers[3].silent = True
    await delete(world, "t")
    (refused,) = await world.controller.runner.ask(CreateTopics((NewTopic("t", 1, 1),)))
    assert refused.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "being deleted" in (refused.message or "")
    await world.kill(3)
    await world.start(3)
    (created,) = await world.controller.runner.ask(CreateTopics((NewTopic("t", 1, 1),)))
    assert created.error is ErrorCode.NONE


async def test_waits_for_a_replica_that_cannot_be_opened_now(world: World) -> None:
    await world.make_topic("t", (1, 3))
    notice = Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(3), sequential=True)
    world.brokers[3].failed_partitions = {TP}
    world.write(notice)
    await world.settle()
    await delete(world, "t")
    assert len(traces(world, "t")) == 2
    world.brokers[3].failed_partitions = set()
    world.write(notice)
    await world.settle()
    assert traces(world, "t") == []
    assert world.brokers[3].deleted == [TP]


async def test_a_replica_is_deleted_whose_log_cannot_be_opened(world: World) -> None:
    """It counts as offline, and its topic waited for a restart of the broker, which changes nothing."""
    await world.make_topic("t", (1, 3))
    broker = world.brokers[3]
    broker.failed_partitions, broker.deletes_failed = {TP}, True
    world.write(Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(3), sequential=True))
    await world.settle()
    await delete(world, "t")
    assert traces(world, "t") == []
    assert broker.deleted == [TP]
