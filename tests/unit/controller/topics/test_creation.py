"""CreateTopics and CreatePartitions, check by check (facts §14)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from logyard.broker.controller.events import CreatedTopic, CreatePartitions, CreateTopics, NewPartitions, NewTopic
from logyard.broker.controller.policies import PolicyViolation, TopicRequest
from logyard.broker.controller.settings import LEVEL_2_5
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, Assignment
from logyard.broker.znodes import config_changes, configs, delete_topics
from logyard.broker.znodes import topics as topic_znode
from tests.support.controller_world import World


async def create(world: World, *topics: NewTopic, validate_only: bool = False) -> Sequence[CreatedTopic]:
    created = await world.controller.runner.ask(CreateTopics(topics, validate_only))
    await world.settle()
    return created


def refuse_colours(overrides: Mapping[str, str]) -> None:
    if "colour" in overrides:
        raise ApiError(ErrorCode.INVALID_CONFIG, "Unknown topic config name: colour")


def no_singles(request: TopicRequest) -> None:
    if request.replication_factor == 1:
        raise PolicyViolation("one replica is none")


@pytest.fixture
async def strict(make_world: Callable[..., World]) -> World:
    world = make_world(
        validate_topic_overrides=refuse_colours,
        create_policy=no_singles,
        num_partitions=2,
        default_replication_factor=3,
    )
    await world.start(1, 2, 3)
    await world.make_topic("old.topic", (1, 2))
    return world


REFUSALS = [
    (NewTopic("old.topic", 1, 2), ErrorCode.TOPIC_ALREADY_EXISTS),
    (NewTopic("old_topic", 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("", 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic(".", 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("..", 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("x" * 250, 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("naïve", 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("a/b", 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("t\n", 1, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("t", 1, 2, configs={"colour": "red"}), ErrorCode.INVALID_CONFIG),
    (NewTopic("t", 1, 2, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    (NewTopic("t", 1, -1, assignments=((0, (1, 2)),)), ErrorCode.INVALID_REQUEST),
    (NewTopic("t", -1, 2, assignments=((0, (1, 2)),)), ErrorCode.INVALID_REQUEST),
    (NewTopic("t", 0, 2), ErrorCode.INVALID_PARTITIONS),
    (NewTopic("t", -2, 2), ErrorCode.INVALID_PARTITIONS),
    (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic("t", assignments=((0, (1, 2)), (1, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", assignments=((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", assignments=((1, (1, 2)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", 1, 1), ErrorCode.POLICY_VIOLATION),
    # the earlier check answers
    (NewTopic("old.topic", 0, 9, configs={"retention.ms": None}), ErrorCode.TOPIC_ALREADY_EXISTS),
    (NewTopic("a/b", 0, 9, ((0, ()),), {"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    (NewTopic("a/b", 0, 9, ((0, ()),), {"colour": "red"}), ErrorCode.INVALID_REQUEST),
    (NewTopic("a/b", 0, 9, configs={"colour": "red"}), ErrorCode.INVALID_PARTITIONS),
    (NewTopic("a/b", 1, 9, configs={"colour": "red"}), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic("old_topic", 1, 1, configs={"colour": "red"}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("a/b", assignments=((0, ()),)), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("t", 1, 1, configs={"colour": "red"}), ErrorCode.INVALID_CONFIG),
    # more than ZooKeeper takes, which would close the connection
    (NewTopic("t", 1, 2, configs={"retention.ms": "1" * 900_000}), ErrorCode.INVALID_CONFIG),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("topic", "code"), REFUSALS)
async def test_refusals(strict: World, topic: NewTopic, code: ErrorCode, validate_only: bool) -> None:
    good = NewTopic("good", 1, 2)
    refused, created = await create(strict, topic, good, validate_only=validate_only)
    assert (refused.name, refused.error) == (topic.name, code)
    assert refused.message
    assert created.error is ErrorCode.NONE, "others in the request are judged for themselves"
    assert strict.tree.children("/brokers/topics") == (["old.topic"] if validate_only else ["good", "old.topic"])
    assert strict.tree.children("/config/topics") == ([] if validate_only else ["good"])


async def test_defaults(strict: World) -> None:
    (created,) = await create(strict, NewTopic("t"))
    assert (created.num_partitions, created.replication_factor) == (2, 3)
    assert configs.decode(strict.read(configs.topic_path("t")) or b"") == {}


async def test_settings_that_a_former_topic_left_unreadable_keep_no_other_topic(world: World) -> None:
    left = configs.topic_path("t")
    world.make(left, configs.encode({"retention.ms": "7"}))
    world.controller.zk.refused.add(left)
    created = await create(world, NewTopic("t", 1, 1), NewTopic("u", 1, 1))
    assert [topic.error for topic in created] == [ErrorCode.NONE, ErrorCode.NONE]
    assert configs.decode(world.read(left) or b"") == {}, "it may be written, or ZooKeeper refuses this topic alone"


async def test_the_same_name_twice(world: World) -> None:
    created = await create(world, NewTopic("t", 1, 1), NewTopic("t", 2, 1), NewTopic("u", 1, 1))
    assert [c.error for c in created] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


async def test_names_that_collide_inside_one_request(world: World) -> None:
    created = await create(world, NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1))
    assert [c.error for c in created] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_manual_placement_with_unknown_brokers(world: World) -> None:
    (created,) = await create(world, NewTopic("t", assignments=((1, (9, 1)), (0, (2, 9)))))
    assert (created.error, created.num_partitions, created.replication_factor) == (0, 2, 2)
    assert world.topic("t").partitions == {0: Assignment((2, 9)), 1: Assignment((9, 1))}
    state = world.state("t", 1)
    assert state is not None
    assert (state.leader, state.isr) == (1, (1,))


async def test_racks(make_world: Callable[..., World]) -> None:
    world = make_world()
    await world.start(1, 2, 3, racks={1: "a", 2: "b"})
    (created,) = await create(world, NewTopic("t", 1, 2))
    assert created.error is ErrorCode.UNKNOWN_SERVER_ERROR
    (created,) = await world.controller.runner.ask(CreateTopics((NewTopic("t", 1, 2),), rack_aware=False))
    assert created.error is ErrorCode.NONE


async def test_topic_waiting_for_deletion_exists(world: World) -> None:
    await world.make_topic("t", (1, 9))
    world.make(delete_topics.path("t"))
    await world.settle()
    (created,) = await create(world, NewTopic("t", 1, 1))
    assert created.error is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_config_left_by_an_older_topic_is_replaced(world: World) -> None:
    world.make(configs.topic_path("t"), configs.encode({"retention.ms": "1"}))
    await create(world, NewTopic("t", 1, 1, configs={"segment.bytes": "1000"}))
    assert configs.decode(world.read(configs.topic_path("t")) or b"") == {"segment.bytes": "1000"}


async def test_after_a_lost_reply_the_topic_counts_as_created(world: World) -> None:
    world.controller.zk.lose_replies()
    (created,) = await create(world, NewTopic("t", 1, 3))
    assert created.error is ErrorCode.NONE
    assert world.state("t") is not None


async def test_old_protocol_level_writes_no_ids(make_world: Callable[..., World]) -> None:
    world = make_world(level=LEVEL_2_5)
    await world.start(1)
    (created,) = await create(world, NewTopic("t", 1, 1))
    assert created.topic_id == ZERO_TOPIC_ID
    assert b"topic_id" not in (world.read(topic_znode.topic_path("t")) or b"")
    assert world.read("/feature") == b'{"version":1,"status":0,"features":{}}'


async def test_not_controller(world: World) -> None:
    with pytest.raises(ApiError) as refused:
        await world.brokers[2].runner.ask(CreateTopics(()))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


# CreatePartitions


async def grow(world: World, *topics: NewPartitions, validate_only: bool = False) -> list[ErrorCode]:
    outcomes = await world.controller.runner.ask(CreatePartitions(topics, validate_only))
    await world.settle()
    return [outcomes[t.topic].error for t in topics]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_growth(world: World, validate_only: bool) -> None:
    await world.make_topic("t", (2, 3))
    topic_id = world.topic("t").topic_id
    assert await grow(world, NewPartitions("t", 3), validate_only=validate_only) == [ErrorCode.NONE]
    assert sorted(world.topic("t").partitions) == ([0] if validate_only else [0, 1, 2])
    assert world.topic("t").topic_id == topic_id
    assert (world.state("t", 2) is None) == validate_only


async def test_growth_by_hand(world: World) -> None:
    await world.make_topic("t", (2, 3))
    assert await grow(world, NewPartitions("t", 3, ((1, 2), (3, 1)))) == [ErrorCode.NONE]
    assert world.topic("t").partitions[2] == Assignment((3, 1))


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewPartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 4, ((1, 2),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, ((1, 9),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, ((1, 1),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, ((1, 2, 3),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("doomed", 3), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_growth_refused(world: World, wanted: NewPartitions, code: ErrorCode) -> None:
    await world.make_topic("t", (1, 2), (2, 3))
    await world.make_topic("doomed", (1, 9))
    world.make(delete_topics.path("doomed"))
    await world.settle()
    assert await grow(world, wanted) == [code]
    assert sorted(world.topic("t").partitions) == [0, 1]


async def test_answers_keep_the_order_of_the_request(world: World) -> None:
    created = await create(world, NewTopic("b", 1, 1), NewTopic("", 1, 1), NewTopic("a", 1, 1))
    assert [c.name for c in created] == ["b", "", "a"]
    assert replace(created[0]).num_partitions == 1


async def test_settings_are_sent_to_the_brokers(world: World) -> None:
    await create(world, NewTopic("plain", 1, 1), NewTopic("set", 1, 1, configs={"segment.bytes": "1000"}))
    changes = world.tree.children(config_changes.PATH) or []
    told = [config_changes.decode(world.read(config_changes.path(name)) or b"") for name in changes]
    assert told == [("topics", "set")]


async def test_the_same_topic_twice_in_one_growth(world: World) -> None:
    await world.make_topic("t", (1, 2))
    await world.make_topic("u", (1, 2))
    codes = await grow(world, NewPartitions("t", 2), NewPartitions("t", 3), NewPartitions("u", 2))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert sorted(world.topic("t").partitions) == [0]


async def test_a_failing_policy_affects_only_its_topic(make_world: Callable[..., World]) -> None:
    def fails(request: TopicRequest) -> None:
        if request.topic == "bad":
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "policy x.Y failed: KeyError: 'oops'")

    world = make_world(create_policy=fails)
    await world.start(1)
    created = await create(world, NewTopic("bad", 1, 1), NewTopic("good", 1, 1))
    assert [c.error for c in created] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


async def test_a_policy_sees_what_was_resolved(make_world: Callable[..., World]) -> None:
    seen: list[TopicRequest] = []
    world = make_world(create_policy=seen.append, num_partitions=2, default_replication_factor=1)
    await world.start(1)
    by_hand = NewTopic("hand", assignments=((0, (1,)),), configs={"retention.ms": "1"})
    await create(world, NewTopic("default"), by_hand, validate_only=True)
    assert seen == [
        TopicRequest("default", 2, 1, None, {}),
        TopicRequest("hand", None, None, {0: (1,)}, {"retention.ms": "1"}),
    ]
