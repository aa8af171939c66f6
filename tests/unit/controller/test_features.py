"""UpdateFeatures: no broker supports any, so all that can be done is to take names out again (facts §22)."""

from collections.abc import Callable

import pytest

from logyard.broker.controller.events import FeatureChange, Outcome, UpdateFeatures, UpgradeKind
from logyard.broker.controller.settings import LEVEL_2_5
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.znodes import feature
from tests.support.controller_world import World

LEFT_OVER = b'{"version":2,"status":1,"features":{"left":{"max_version_level":2},"over":{"max_version_level":1}}}'


async def update(world: World, *changes: FeatureChange, validate_only: bool = False) -> dict[str, Outcome]:
    return await world.controller.runner.update_features(UpdateFeatures(changes, validate_only))


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
async def test_a_name_can_be_taken_out_beside_a_refusal(world: World, validate_only: bool) -> None:
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
        await world.brokers[2].runner.update_features(UpdateFeatures(()))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
