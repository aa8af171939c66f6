"""Asking a controller's world to move a partition."""

from logyard.broker.controller.events import (
    AlterReassignments,
)
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from tests.support.controller_world import World

TP = TopicPartition("t", 0)


async def move(world: World, *target: int, tp: TopicPartition = TP) -> ErrorCode:
    outcomes = await world.controller.runner.ask(AlterReassignments(((tp, target or None),)))
    await world.settle()
    return outcomes[tp].error
