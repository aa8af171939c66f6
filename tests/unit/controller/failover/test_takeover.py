"""Taking over from whatever state the last controller left (facts §3)."""

from collections.abc import Callable

import pytest

from logyard.broker.controller.broker_requests.batch import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from logyard.broker.controller.broker_requests.encoding import UPDATE_METADATA
from logyard.broker.controller.effects import Send
from logyard.broker.controller.events import CreateTopics, NewTopic
from logyard.broker.model import Assignment, PartitionState, TopicPartition
from logyard.broker.znodes import (
    delete_topics,
    feature,
    isr_notifications,
    log_dir_events,
    partition_state,
    preferred_election,
)
from logyard.broker.znodes import topics as topic_znode
from tests.support.controller_world import ScriptedBroker, World

TP = TopicPartition("t", 0)


@pytest.fixture
def empty(make_world: Callable[..., World]) -> World:
    return make_world()


def put_topic(world: World, name: str, *placement: tuple[int, ...], made: int = 0) -> None:
    """A topic znode and, for `made` partitions, only the parents of the state."""
    world.make(topic_znode.topic_path(name), world.topic_data(placement))
    for partition in range(made):
        world.make(topic_znode.partition_path(name, partition))


@pytest.mark.parametrize("made", [0, 1, 2])
async def test_half_created_topic_is_finished(empty: World, made: int) -> None:
    put_topic(empty, "t", (1, 2), (2, 1), made=made)
    await empty.start(1)
    assert empty.state("t", 0) == PartitionState(1, 0, (1,), 1)
    assert empty.state("t", 1) == PartitionState(1, 0, (1,), 1)


async def test_parents_without_partitions(empty: World) -> None:
    put_topic(empty, "t", (1,))
    empty.make(topic_znode.partitions_path("t"))
    await empty.start(1)
    assert empty.state("t") is not None


async def test_some_states_exist_already(empty: World) -> None:
    put_topic(empty, "t", (1,), (1,), made=1)
    empty.make(partition_state.path(TP), partition_state.encode(PartitionState(1, 7, (1,), 0)))
    await empty.start(1)
    assert empty.state("t", 0) == PartitionState(1, 7, (1,), 0)
    assert empty.state("t", 1) == PartitionState(1, 0, (1,), 1)


async def test_no_live_replica_waits_without_a_state(empty: World) -> None:
    put_topic(empty, "t", (8, 9))
    await empty.start(1)
    assert empty.state("t") is None
    await empty.start(9)
    assert empty.state("t") == PartitionState(9, 0, (9,), 1)


async def test_order_of_the_first_requests(empty: World) -> None:
    put_topic(empty, "t", (1, 2))
    empty.make(partition_state.path(TP), partition_state.encode(PartitionState(2, 3, (2, 1), 0)))
    await empty.start(1)
    sent = [e.request for _, e in empty.brokers[1].effects if isinstance(e, Send)]
    assert isinstance(sent[0], UpdateMetadataRequest)
    assert sent[0].partitions == ()
    assert isinstance(sent[1], LeaderAndIsrRequest)
    # the dead leader: -1, then 1 elected
    assert [e.state.leader for r in sent if isinstance(r, LeaderAndIsrRequest) for e in r.partitions] == [2, -1, 1]
    assert not any(isinstance(r, StopReplicaRequest) for r in sent), "nobody to stop lives"
    assert empty.state("t") == PartitionState(1, 5, (1,), 1, 2)


async def test_old_notifications_are_dropped(empty: World) -> None:
    empty.make(f"{isr_notifications.PATH}/isr_change_0000000001", b"x")
    empty.make(f"{log_dir_events.PATH}/log_dir_event_0000000001", b"x")
    await empty.start(1)
    assert empty.tree.children(isr_notifications.PATH) == []
    assert empty.tree.children(log_dir_events.PATH) == []


async def test_preferred_election_left_over(empty: World) -> None:
    put_topic(empty, "t", (1, 2))
    empty.make(preferred_election.PATH, preferred_election.encode([TP]))
    await empty.start(1)
    assert empty.read(preferred_election.PATH) is None


@pytest.mark.parametrize("gone", ["topic", "config", "nothing"])
async def test_half_done_deletion_is_finished(empty: World, gone: str) -> None:
    if gone == "nothing":
        put_topic(empty, "t", (1,))
    if gone != "config":
        empty.make("/config/topics/t", b'{"version":1,"config":{}}')
    empty.make(delete_topics.path("t"))
    await empty.start(1)
    assert empty.tree.children(delete_topics.PATH) == []
    assert empty.tree.children("/config/topics") == []
    assert empty.tree.children("/brokers/topics") == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{not json",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"partitions":{"x":[1]}}',
        b'{"version":1,"partitions":{"0":"1"}}',
        b'{"version":1,"partitions":{"0":[]}}',
        b'{"version":1,"partitions":{"0":[1,1]}}',
        b'{"version":1,"partitions":{"0":[-1]}}',
        b'{"version":3,"partitions":{"0":[1]},"topic_id":"short"}',
        b"\xff\xfe",
    ],
)
async def test_a_bad_topic_znode_affects_only_its_topic(empty: World, data: bytes) -> None:
    empty.make(topic_znode.topic_path("bad"), data)
    put_topic(empty, "good", (1,))
    await empty.start(1)
    assert empty.state("good") is not None
    assert empty.read(topic_znode.partitions_path("bad")) is None
    # and the same at the watch
    empty.make(topic_znode.topic_path("bad2"), data)
    await empty.make_topic("good2", (1,))
    assert empty.state("good2") is not None
    # mended by hand, it comes alive
    empty.set(topic_znode.topic_path("bad2"), empty.topic_data([(1,)]))
    await empty.settle()
    assert empty.state("bad2") is not None


async def test_unusable_partition_is_kept_in_the_znode(empty: World) -> None:
    empty.make(topic_znode.topic_path("t"), b'{"version":1,"partitions":{"0":[1],"1":[]}}')
    await empty.start(1)
    assert empty.state("t", 0) is not None
    assert empty.topic("t").topic_id is not None
    assert sorted(empty.topic("t").partitions) == [0, 1]


@pytest.mark.parametrize("name", ["sp ace", "ü"])
async def test_a_topic_with_an_illegal_name_is_not_used(empty: World, name: str) -> None:
    put_topic(empty, name, (1,))
    put_topic(empty, "good", (1,))
    await empty.start(1)
    assert empty.state("good") is not None
    assert empty.read(topic_znode.partitions_path(name)) is None


async def test_a_bad_state_affects_only_its_partition(empty: World) -> None:
    put_topic(empty, "t", (1,), (1,))
    empty.make(partition_state.path(TP), b"rubbish")
    await empty.start(1)
    assert empty.read(partition_state.path(TP)) == b"rubbish"
    assert empty.state("t", 1) is not None


async def test_a_bad_registration_affects_only_its_broker(empty: World) -> None:
    empty.make("/brokers/ids/7", b"rubbish")
    empty.make("/brokers/ids/seven", b"rubbish")
    put_topic(empty, "t", (7, 1))
    await empty.start(1)
    assert empty.state("t") == PartitionState(1, 0, (1,), 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"version":2,"status":0,"features":{}}', b'{"version":2,"status":1,"features":{}}'),
        (b'{"version":2,"status":1,"features":{"x":{"max_version_level":1}}}', None),
        (b'{"version":1,"status":1,"features":{}}', b'{"version":2,"status":1,"features":{}}'),
        (b"rubbish", None),
    ],
)
async def test_feature_znode(empty: World, before: bytes, after: bytes | None) -> None:
    empty.make(feature.PATH, before)
    await empty.start(1)
    assert empty.read(feature.PATH) == (after or before)


async def test_topic_without_id_gets_one_and_keeps_it(empty: World) -> None:
    put_topic(empty, "t", (1, 2))
    await empty.start(1, 2)
    topic_id = empty.topic("t").topic_id
    assert topic_id is not None
    await empty.kill(1)
    assert empty.topic("t").topic_id == topic_id


async def test_a_failing_take_over_gives_up_the_controller_znode(empty: World) -> None:
    await empty.start(1)
    await empty.brokers[1].runner.stop()
    broken = empty.brokers[1]

    async def fails(paths: object) -> None:
        raise RuntimeError("a bug")

    await empty.kill(1)
    await empty.start(2, 3)
    broken = empty.brokers[3]
    broken.zk.children = fails  # type: ignore[method-assign, assignment]
    await empty.kill(2)
    assert empty.read("/controller") is None
    assert not broken.runner.is_active
    await empty.start(4)
    assert empty.controller.id == 4


@pytest.mark.parametrize("steps", range(1, 14))
async def test_controller_dies_anywhere_in_a_creation(make_world: Callable[..., World], steps: int) -> None:
    world = make_world()
    await world.start(1, 2, 3)
    world.brokers[1].die_after(steps)
    await world.controller.runner.ask(CreateTopics((NewTopic("t", 3, 3),)))
    await world.settle()
    await world.kill(1)
    for partition in range(3):
        state = world.state("t", partition)
        assert state is not None
        assert state.leader in (2, 3)
        assert set(state.isr) == {2, 3}


# Brokers that died and came back before anybody took over (KIP-380 needs a controller that sees both)


async def come_back_unseen(world: World, *ids: int) -> None:
    """Let these brokers die, and register again at the moment in which their sessions end."""
    for broker in ids:
        await world.brokers[broker].runner.stop()
        world.brokers[broker].zk.crash()
    for broker in ids:
        world.tree.expire(world.brokers[broker].zk.session_id)
        world.brokers[broker] = ScriptedBroker(world, broker)
        world.brokers[broker].register()
    await world.settle()


async def test_a_leader_that_restarted_unseen_is_replaced(world: World) -> None:
    await world.make_topic("t", (1, 2, 3))
    await come_back_unseen(world, 1)
    assert world.state("t") == PartitionState(2, 1, (2, 3), 2, 1)
    assert world.brokers[1].leader_epochs[TP] == 1, "it follows now"


async def test_a_follower_that_restarted_unseen_leaves_the_isr(world: World) -> None:
    await world.make_topic("t", (2, 1))
    await come_back_unseen(world, 1)
    assert world.state("t") == PartitionState(2, 1, (2,), 2, 1)


async def test_if_all_restarted_unseen_the_leader_gets_a_new_epoch(world: World) -> None:
    await world.make_topic("t", (1, 2))
    await come_back_unseen(world, 1, 2)
    assert world.state("t") == PartitionState(1, 1, (1, 2), 2, 1)


async def test_a_single_replica_that_restarted_unseen_keeps_leading(world: World) -> None:
    await world.make_topic("t", (1,))
    await come_back_unseen(world, 1)
    assert world.state("t") == PartitionState(1, 0, (1,), 1)


async def test_a_state_written_since_counts(world: World) -> None:
    """The controller's write after the broker came back was decided with that in view."""
    await world.make_topic("t", (2, 3))
    await come_back_unseen(world, 2)  # controller 1 sees this one
    before = world.state("t")
    await come_back_unseen(world, 1)
    assert world.state("t") == before


OLD_TREE = {
    # As Kafka 0.8 left it: no ids, no moves, registrations with host and port, an epoch that has been counted.
    "/controller_epoch": b"12",
    "/brokers/ids/7": b'{"jmx_port":-1,"timestamp":"1416000000000","host":"old","version":1,"port":9092}',
    "/brokers/topics/t": b'{"version":1,"partitions":{"1":[7,1],"0":[1,7]}}',
    "/brokers/topics/t/partitions/0/state": (
        b'{"controller_epoch":11,"leader":7,"version":1,"leader_epoch":3,"isr":[7,1]}'
    ),
    "/brokers/topics/t/partitions/1/state": (
        b'{"controller_epoch":12,"leader":9,"version":1,"leader_epoch":5,"isr":[9,1]}'
    ),
    "/config/topics/t": b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}',
    "/config/changes/config_change_0000000000": b'"t"',
    "/admin/delete_topics/gone": b"",
    "/admin/preferred_replica_election": b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "/admin/reassign_partitions": b'{"version":1,"partitions":[{"topic":"nowhere","partition":0,"replicas":[1]}]}',
}


async def test_znodes_of_kafka_0_8_are_taken_over(empty: World) -> None:
    for path, data in OLD_TREE.items():
        empty.make(path, data)
    await empty.start(1)
    assert empty.read("/controller_epoch") == b"13"
    topic = empty.topic("t")
    assert topic.topic_id is not None
    assert topic.partitions == {0: Assignment((1, 7)), 1: Assignment((7, 1))}
    assert (empty.read("/brokers/topics/t") or b"").startswith(b'{"version":3,')
    first, second = empty.state("t", 0), empty.state("t", 1)
    assert first is not None
    assert second is not None
    # Broker 1 registered after both were written: where 7 knows more, 1 has to catch up first.
    assert (first.leader, first.isr, first.leader_epoch, first.controller_epoch) == (7, (7,), 4, 13)
    assert (second.leader, second.isr, second.leader_epoch, second.controller_epoch) == (1, (1,), 6, 13)
    assert empty.tree.children("/admin/delete_topics") == []
    assert empty.read("/admin/preferred_replica_election") is None
    assert empty.read("/admin/reassign_partitions") is None
    live = empty.controller.told(UPDATE_METADATA)[-1]["live_brokers"]
    assert [(b["id"], b["endpoints"][0]["host"]) for b in live if b["id"] == 7] == [(7, "old")]
