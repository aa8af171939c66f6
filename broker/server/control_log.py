"""Logs a line for each request of the controller.

`event_id` is the request's correlation id. Our controller uses the id of the event that caused the request; so
`logyard story` can follow one change from the znode to each broker's disk, in the logs of all brokers.
"""

from collections.abc import Iterable
from typing import Protocol

import structlog

from logyard.broker.errors import ErrorCode
from logyard.broker.model import Folding, TopicPartition
from logyard.broker.portions import portions
from logyard.broker.server.request import Request

# The most ranges of partitions in a line: it stays some kilobytes long.
NAMED_MAX = 100

log = structlog.get_logger("logyard.control")


class FromController(Protocol):
    """The fields that LeaderAndIsr, StopReplica and UpdateMetadata share."""

    @property
    def controller_id(self) -> int: ...

    @property
    def controller_epoch(self) -> int: ...


async def say(
    request: Request,
    api: str,
    order: FromController,
    error: ErrorCode,
    partitions: Iterable[TopicPartition],
    **more: Iterable[TopicPartition],
) -> None:
    """Log a request unless it was refused as a whole; `more` has the partitions by what was done to them.

    Others have their turns while very many are looked at.
    """
    if error is not ErrorCode.NONE:
        return
    count, entries = await _folded(partitions)
    done = {what: (await _folded(some))[1] for what, some in more.items()}
    log.info(
        api,
        event_id=request.correlation_id,
        controller=order.controller_id,
        controller_epoch=order.controller_epoch,
        count=count,
        partitions=entries,
        **{what: named for what, named in done.items() if named},
    )


async def _folded(partitions: Iterable[TopicPartition]) -> tuple[int, list[str]]:
    """Return how many they are, and as text those that a line has."""
    count, folding = 0, Folding(NAMED_MAX)
    async for portion in portions(partitions):
        count += len(portion)
        folding.add(portion)
    return count, folding.entries()
