"""Logs a line for each request of the controller.

`event_id` is the request's correlation id. Our controller uses the id of the event that caused the request; so
`logyard story` can follow one change from the znode to each broker's disk, in the logs of all brokers.
"""

from collections.abc import Sequence
from typing import Protocol

import structlog

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition, folded
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


def say(
    request: Request,
    api: str,
    order: FromController,
    error: ErrorCode,
    partitions: Sequence[TopicPartition],
    **more: Sequence[TopicPartition],
) -> None:
    """Log a request unless it was refused as a whole; `more` has the partitions by what was done to them."""
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
