"""UpdateFeatures: no broker supports any, so the only possible update removes a name (facts §22)."""

from collections.abc import Callable

import pytest

from logyard.broker.config.features import SUPPORTED
from logyard.broker.controller.events import FeatureChange, Outcome, UpdateFeatures, UpgradeKind
from logyard.broker.controller.settings import LEVEL_2_5
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.znodes import feature
from tests.support.controller_world import World

TXN = "transaction.version"
TO_2 = FeatureChange(TXN, 2)
FINALIZED = b'{"version":2,"status":1,"features":{"transaction.version":{"max_version_level":2}}}'
LEFT_OVER = b'{"version":2,"status":1,"features":{"left":{"max_version_level":2},"over":{"max_version_level":1}}}'


async def update(world: World, *changes: FeatureChange, validate_only: bool = False) -> dict[str, Outcome]:
    return await world.controller.runner.ask(UpdateFeatures(changes, validate_only))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (FeatureChange("", 1), "empty"),
        (FeatureChange("left", 1, UpgradeKind.UNKNOWN), "unknown upgrade type"),
        (FeatureChange("new", 1), "not supported"),
        (FeatureChange("new", 0), "less than 1"),
        (FeatureChange("new", 0, UpgradeKind.SAFE_DOWNGRADE), "non-existing"),
        (FeatureChange("left", 2), "to the same value"),
        (FeatureChange("left", 3), "not supported"),
        (FeatureChange("left", 1, UpgradeKind.UNSAFE_DOWNGRADE), "not supported"),
    ],
)
async def test_refused(world: World, change: FeatureChange, said: str) -> None:
    world.set(feature.PATH, LEFT_OVER)
    outcomes = await update(world, change)
    assert outcomes[change.name].error is ErrorCode.INVALID_REQUEST
    assert said in (outcomes[change.name].message or "")
    assert world.read(feature.PATH) == LEFT_OVER


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_name_is_removed_although_another_update_is_refused(world: World, validate_only: bool) -> None:
    world.set(feature.PATH, LEFT_OVER)
    changes = FeatureChange("left", 0, UpgradeKind.SAFE_DOWNGRADE), FeatureChange("new", 1)
    outcomes = await update(world, *changes, validate_only=validate_only)
    assert [o.error for o in outcomes.values()] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    after = b'{"version":2,"status":1,"features":{"over":{"max_version_level":1}}}'
    assert world.read(feature.PATH) == (LEFT_OVER if validate_only else after)


async def test_nothing_asked_nothing_written(world: World) -> None:
    assert await update(world) == {}


async def test_no_features_below_2_7(make_world: Callable[..., World]) -> None:
    world = make_world(level=LEVEL_2_5)
    await world.start(1)
    with pytest.raises(ApiError, match="disabled") as refused:
        await update(world, FeatureChange("x", 1))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_asked_of_another_broker(world: World) -> None:
    with pytest.raises(ApiError) as refused:
        await world.brokers[2].runner.ask(UpdateFeatures(()))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


@pytest.fixture
async def supporting(make_world: Callable[..., World]) -> World:
    """Three brokers of ours; the first one controls."""
    world = make_world()
    world.features = dict.fromkeys((1, 2, 3), tuple(SUPPORTED.items()))
    await world.start(1, 2, 3)
    return world


async def test_a_level_that_every_broker_supports_is_finalized_once(supporting: World) -> None:
    checked = await update(supporting, TO_2, validate_only=True)
    assert checked[TXN].error is ErrorCode.NONE
    assert supporting.read(feature.PATH) == b'{"version":2,"status":1,"features":{}}'
    assert (await update(supporting, TO_2))[TXN].error is ErrorCode.NONE
    assert supporting.read(feature.PATH) == FINALIZED
    assert "same value" in ((await update(supporting, TO_2))[TXN].message or "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (FeatureChange(TXN, 3), "not supported"),
        (FeatureChange(TXN, 1), "because the upgradeType was set to UPGRADE"),
        (FeatureChange(TXN, 3, UpgradeKind.SAFE_DOWNGRADE), "set to a downgrade"),
    ],
)
async def test_other_levels_are_refused(supporting: World, change: FeatureChange, said: str) -> None:
    supporting.set(feature.PATH, FINALIZED)
    outcome = (await update(supporting, change))[TXN]
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert said in (outcome.message or "")
    assert supporting.read(feature.PATH) == FINALIZED


@pytest.mark.parametrize("level", [0, 1])
async def test_a_level_goes_down_again(supporting: World, level: int) -> None:
    supporting.set(feature.PATH, FINALIZED)
    change = FeatureChange(TXN, level, UpgradeKind.SAFE_DOWNGRADE)
    assert (await update(supporting, change))[TXN].error is ErrorCode.NONE
    assert (b'"max_version_level":1' in (supporting.read(feature.PATH) or b"")) is (level == 1)


async def test_a_broker_of_kafka_among_the_living_forbids_it(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.features = dict.fromkeys((1, 3), tuple(SUPPORTED.items()))
    await world.start(1, 2, 3)
    outcome = (await update(world, TO_2))[TXN]
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert "do not support transaction.version 2: 2." in (outcome.message or "")
    assert world.read(feature.PATH) == b'{"version":2,"status":1,"features":{}}'
