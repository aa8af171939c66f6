"""Brokers that die, return, bounce, change and lose directories; requested elections; controlled shutdown."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from logyard.broker.controller.broker_requests.encoding import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from logyard.broker.controller.effects import Schedule
from logyard.broker.controller.events import ControlledShutdown, ElectionKind, ElectLeaders, Outcome
from logyard.broker.controller.settings import LEVEL_2_5, LEVEL_3_9, ProtocolLevel
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import Endpoint, PartitionState, TopicPartition
from logyard.broker.znodes import brokers as broker_znode
from logyard.broker.znodes import configs, delete_topics, partition_state, preferred_election
from logyard.broker.znodes.ops import Create, Delete, SetData, Znode
from tests.support.controller_world import World
from tests.support.controller_world import known_state as state

TP = TopicPartition("t", 0)


# Death and return


async def test_follower_dies(world: World) -> None:
    await world.make_topic("t", (1, 2, 3))
    await world.kill(3)
    assert state(world) == PartitionState(1, 1, (1, 2), 1, 1)


@pytest.mark.parametrize("level", [LEVEL_2_5, LEVEL_3_9])
@pytest.mark.parametrize("dying", [2, 3])
async def test_a_member_that_memory_does_not_know_leaves_the_isr_or_leads(
    make_world: Callable[..., World], level: ProtocolLevel, dying: int
) -> None:
    """A leader below 2.7-IV2, maybe beside a newer controller, writes its ISR itself and sends the notification seconds
    later."""
    world = make_world(level=level)
    await world.start(1, 2, 3)
    await world.make_topic("t", (2, 3))
    await world.kill(3)
    await world.start(3)
    alone = state(world)
    assert alone.isr == (2,)
    grown = partition_state.encode(alone._replace(isr=(2, 3)))
    world.write(SetData(partition_state.path(TP), grown, alone.partition_epoch))
    await world.kill(dying)
    assert (state(world).leader, state(world).isr) == (5 - dying, (5 - dying,))


async def test_last_isr_member_dies_and_returns(world: World) -> None:
    await world.make_topic("t", (3,))
    await world.kill(3)
    assert state(world) == PartitionState(-1, 1, (3,), 1, 1)
    await world.start(3)
    assert state(world) == PartitionState(3, 2, (3,), 1, 2)


async def test_all_but_one_die_at_once(world: World) -> None:
    await world.make_topic("t", (3, 2, 1))
    for broker in (2, 3):
        world.brokers[broker].zk.crash()
        await world.brokers[broker].runner.stop()
        session = world.brokers.pop(broker).zk.session_id
        world.tree.expire(session)
    await world.settle()
    assert state(world).leader == 1
    assert state(world).isr == (1,)


async def test_a_returning_broker_gets_all_metadata_before_its_own_replicas(world: World) -> None:
    await world.make_topic("t", (1, 3))
    await world.make_topic("u", (1, 2))
    await world.kill(3)
    await world.start(3)
    received = world.brokers[3].received
    assert received[0].api_key == UPDATE_METADATA
    assert {t["topic_name"] for t in received[0].fields["topic_states"]} == {"t", "u"}
    assert LEADER_AND_ISR in [r.api_key for r in received]


async def test_bounced_broker(world: World) -> None:
    """The registration is replaced between two looks: death and start at once (KIP-380)."""
    await world.make_topic("t", (3, 1))
    broker = world.brokers[3]
    data = world.read(broker_znode.path(3))
    assert data is not None
    result = world.tree.multi(
        broker.zk.session_id,
        [Delete(broker_znode.path(3)), Create(broker_znode.path(3), data, ephemeral=True)],
    )
    broker.epoch = result[1].czxid
    await world.settle()
    assert state(world) == PartitionState(1, 1, (1,), 1, 1)
    assert broker.received[-1].fields["broker_epoch"] == broker.epoch


async def test_changed_endpoints_are_sent_to_all_brokers(world: World) -> None:
    await world.make_topic("t", (3, 1))
    moved = replace(world.brokers[3].info(), endpoints=(Endpoint("PLAINTEXT", "PLAINTEXT", "10.0.0.3", 1),))
    world.write(SetData(broker_znode.path(3), broker_znode.encode(moved, 0)))
    await world.settle()
    for broker in world.brokers.values():
        (entry,) = [b for b in broker.told(UPDATE_METADATA)[-1]["live_brokers"] if b["id"] == 3]
        assert entry["endpoints"][0]["host"] == "10.0.0.3"


async def test_the_death_of_a_broker_without_replicas_is_sent_too(world: World) -> None:
    await world.kill(3)
    assert [b["id"] for b in world.brokers[2].told(UPDATE_METADATA)[-1]["live_brokers"]] == [1, 2]


# Unclean elections


async def test_unclean_by_topic_config(world: World) -> None:
    world.make(configs.topic_path("t"), configs.encode({"unclean.leader.election.enable": "true"}))
    await world.make_topic("t", (3, 2))
    await world.kill(2)
    await world.kill(3)
    assert state(world).leader == -1
    await world.start(2)
    assert (state(world).leader, state(world).isr, state(world).recovering) == (2, (2,), True)


async def test_unclean_switched_on_while_offline(world: World) -> None:
    await world.make_topic("t", (3, 2))
    await world.kill(2)
    await world.kill(3)
    await world.start(2)
    assert state(world).leader == -1
    world.make(configs.topic_path("t"), configs.encode({"unclean.leader.election.enable": "true"}))
    world.controller.runner.on_topic_unclean_election_enabled("t")
    await world.settle()
    assert state(world).leader == 2


async def test_unclean_by_default_switched_on(world: World) -> None:
    await world.make_topic("t", (3, 2))
    await world.kill(2)
    await world.kill(3)
    await world.start(2)
    runner = world.controller.runner
    runner.update_settings(replace(world.settings(1), unclean_leader_election_enable=True))
    await world.settle()
    assert state(world).leader == 2


async def test_an_unreadable_topic_config_stops_only_unclean_elections(world: World) -> None:
    world.make(configs.topic_path("t"), b"rubbish")
    await world.make_topic("t", (3, 2))
    await world.kill(3)
    assert state(world).leader == 2
    await world.kill(2)
    await world.start(3)
    assert state(world).leader == -1


# ElectLeaders


async def elect(world: World, kind: ElectionKind, *tps: TopicPartition) -> dict[TopicPartition, ErrorCode]:
    outcomes = await world.controller.runner.ask(ElectLeaders(kind, tps or None))
    await world.settle()
    assert all(isinstance(o, Outcome) for o in outcomes.values())
    return {tp: o.error for tp, o in outcomes.items()}


async def test_preferred(world: World) -> None:
    await world.make_topic("t", (3, 1), (1, 2))
    await world.kill(3)
    await world.start(3)
    await world.grow_isr("t", 0, 1, 3)
    answers = await elect(world, ElectionKind.PREFERRED)
    assert answers == {TP: ErrorCode.NONE}, "those already well led are left out"
    assert (state(world).leader, state(world).leader_epoch) == (3, 2)
    assert await elect(world, ElectionKind.PREFERRED, TP) == {TP: ErrorCode.ELECTION_NOT_NEEDED}


async def test_refusals_of_elections(world: World) -> None:
    await world.make_topic("t", (3, 1))
    await world.make_topic("doomed", (9, 1))
    world.make(delete_topics.path("doomed"))
    await world.kill(3)
    doomed, unknown = TopicPartition("doomed", 0), TopicPartition("nope", 0)
    assert await elect(world, ElectionKind.PREFERRED, TP, doomed, unknown) == {
        TP: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        doomed: ErrorCode.INVALID_TOPIC_EXCEPTION,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await elect(world, ElectionKind.UNCLEAN, TP) == {TP: ErrorCode.ELECTION_NOT_NEEDED}


async def test_unclean_by_an_administrator(world: World) -> None:
    await world.make_topic("t", (3, 2))
    await world.kill(2)
    await world.kill(3)
    assert await elect(world, ElectionKind.UNCLEAN, TP) == {TP: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    await world.start(2)
    assert await elect(world, ElectionKind.UNCLEAN, TP) == {TP: ErrorCode.NONE}
    assert (state(world).leader, state(world).isr, state(world).recovering) == (2, (2,), True)


async def test_preferred_by_znode_again_and_again(world: World) -> None:
    await world.make_topic("t", (3, 1))
    for epoch in (2, 4):
        await world.kill(3)
        await world.start(3)
        await world.grow_isr("t", 0, 1, 3)
        world.make(preferred_election.PATH, preferred_election.encode([TP, TopicPartition("nope", 1)]))
        await world.settle()
        assert world.read(preferred_election.PATH) is None
        assert (state(world).leader, state(world).leader_epoch) == (3, epoch)


async def test_an_unreadable_preferred_election_is_removed(world: World) -> None:
    world.make(preferred_election.PATH, b"rubbish")
    await world.settle()
    assert world.read(preferred_election.PATH) is None


async def test_auto_rebalance(make_world: Callable[..., World]) -> None:
    from logyard.broker.controller.events import LeadersImbalanceDue

    world = make_world(leader_imbalance_per_broker_percentage=50)
    await world.start(1, 2, 3)
    await world.make_topic("t", (3, 1), (3, 1))
    await world.kill(3)
    await world.start(3)
    await world.grow_isr("t", 0, 1, 3)
    runner = world.controller.runner
    assert (await runner.gauges())["PreferredReplicaImbalanceCount"] == 2
    runner.queue.put(LeadersImbalanceDue())
    await world.settle()
    assert [state(world, "t", p).leader for p in (0, 1)] == [3, 1]
    await world.grow_isr("t", 1, 1, 3)
    runner.queue.put(LeadersImbalanceDue())
    await world.settle()
    assert [state(world, "t", p).leader for p in (0, 1)] == [3, 1], "half is not more than 50 percent"


async def test_a_check_of_leaders_that_fails_is_not_the_last(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else leaders stay where they are until the next controller."""
    often = {"first_leader_imbalance_check_s": 0.01, "leader_imbalance_check_interval_s": 0.01}
    world = make_world(leader_imbalance_per_broker_percentage=0, **often)
    await world.start(1, 2, 3)
    await world.make_topic("t", (3, 1))
    await world.kill(3)
    await world.start(3)
    zk, failed = world.controller.zk, False
    real = zk.read

    async def failing_once(paths: Sequence[str]) -> list[Znode | None]:
        nonlocal failed
        if not failed and partition_state.path(TP) in paths:
            failed = True
            raise RuntimeError("a fault of ours")
        return await real(paths)

    monkeypatch.setattr(zk, "read", failing_once)
    await world.grow_isr("t", 0, 1, 3)
    async with asyncio.timeout(5):
        while state(world).leader != 3:
            await asyncio.sleep(0.01)
    assert failed


async def test_leaders_are_checked_once_in_the_interval_however_often_that_is_switched_on(
    make_world: Callable[..., World],
) -> None:
    world = make_world(leader_imbalance_check_interval_s=0.05)
    await world.start(1)
    runner = world.controller.runner
    on = runner.context.settings
    for settings in (replace(on, auto_leader_rebalance_enable=False), on) * 20:
        runner.update_settings(settings)
    await world.settle()
    before = len(world.controller.effects)
    await asyncio.sleep(0.5)
    checks = [effect for _, effect in world.controller.effects[before:] if isinstance(effect, Schedule)]
    assert 1 <= len(checks) <= 11


# Controlled shutdown


async def shut(world: World, broker: int, epoch: int | None = None) -> tuple[ErrorCode, list[TopicPartition]]:
    asked = ControlledShutdown(broker, world.brokers[broker].epoch if epoch is None else epoch)
    result = await world.controller.runner.ask(asked)
    await world.settle()
    return result.error, list(result.remaining)


async def test_the_classic_sequence(make_world: Callable[..., World]) -> None:
    world = make_world()
    await world.start(0, 1, 2)
    await world.make_topic("t", (1, 0, 2))
    await world.make_topic("single", (2,))
    assert await shut(world, 2) == (ErrorCode.NONE, [])
    assert state(world).isr == (1, 0)
    assert state(world, "single").leader == 2, "a single replica is left alone"
    assert await shut(world, 1) == (ErrorCode.NONE, [])
    assert (state(world).leader, state(world).isr) == (0, (0,))
    assert await shut(world, 0) == (ErrorCode.NONE, [TP])
    assert state(world).leader == 0


async def test_shutdown_of_a_leader_costs_one_epoch_and_its_exit_none(world: World) -> None:
    await world.make_topic("t", (3, 1, 2))
    await shut(world, 3)
    assert state(world) == PartitionState(1, 1, (1, 2), 1, 1)
    await world.kill(3)
    assert state(world).leader_epoch == 1
    await world.start(3)
    assert (await world.controller.runner.gauges())["ActiveBrokerCount"] == 3


async def test_follower_that_leaves_is_stopped(world: World) -> None:
    await world.make_topic("t", (1, 3))
    await shut(world, 3)
    stops = world.brokers[3].told(STOP_REPLICA)
    assert [p["delete_partition"] for r in stops for t in r["topic_states"] for p in t["partition_states"]] == [
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [
        (9, -1, ErrorCode.BROKER_NOT_AVAILABLE),
        (9, 5, ErrorCode.UNKNOWN_SERVER_ERROR),
        (3, 0, ErrorCode.STALE_BROKER_EPOCH),
        (3, -1, ErrorCode.NONE),
    ],
)
async def test_who_may_ask(world: World, broker: int, epoch: int, code: ErrorCode) -> None:
    result = await world.controller.runner.ask(ControlledShutdown(broker, epoch))
    assert result.error is code


async def test_asked_of_the_wrong_broker(world: World) -> None:
    with pytest.raises(ApiError) as refused:
        await world.brokers[2].runner.ask(ControlledShutdown(3, -1))
    assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH


async def test_elections_of_all_partitions_leave_out_well_led_ones(world: World) -> None:
    await world.make_topic("t", (3, 1), (1, 3))
    await world.kill(3)
    await world.start(3)
    await world.grow_isr("t", 0, 1, 3)
    await world.grow_isr("t", 1, 1, 3)
    outcomes = await world.controller.runner.ask(ElectLeaders(ElectionKind.PREFERRED))
    assert {tp: o.error for tp, o in outcomes.items()} == {TP: ErrorCode.NONE}
