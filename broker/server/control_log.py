"""What controllers ask this broker to do, a line each: the half of a change's story that the controller cannot tell.

`event_id` is the request's correlation id. Our controller puts the id of the event there that caused the request, so
that with the controller's own lines one change can be followed from znode to disk: `logyard story`.
"""

from collections.abc import Sequence
from typing import Protocol

import structlog

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition, folded
from logyard.broker.server.request import Request

# So many ranges of partitions are named at most: a line stays some kilobytes.
NAMED_MAX = 100

log = structlog.get_logger("logyard.control")


class FromController(Protocol):
    """What LeaderAndIsr, StopReplica and UpdateMetadata have in common."""

    @property
    def controller_id(self) -> int: ...

    @property
    def controller_epoch(self) -> int: ...


def say(
    request: Request,
    api: str,
    order: FromController,
    error: ErrorCode,
    partitions: Sequence[TopicPartition],
    **more: Sequence[TopicPartition],
) -> None:
    """Note a request unless it was refused as a whole; `more` names partitions for what was done to them."""
    if error is not ErrorCode.NONE:
        return
    log.info(
        api,
        event_id=request.correlation_id,
        controller=order.controller_id,
        controller_epoch=order.controller_epoch,
        count=len(partitions),
        partitions=folded(partitions, NAMED_MAX),
        **{what: folded(some, NAMED_MAX) for what, some in more.items() if some},
    )
