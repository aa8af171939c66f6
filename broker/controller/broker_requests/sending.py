"""Sending a finished batch of requests to brokers, as effects."""

from collections.abc import Iterable, Sequence

from logyard.broker.controller.broker_requests.batch import RequestBatch
from logyard.broker.controller.context import ControllerContext, Partition
from logyard.broker.controller.effects import Send, Steps, Turn


def send(batch: RequestBatch) -> Steps[None]:
    """Send everything a batch has collected, with turns for others where that is much."""
    for _ in batch.prepare():
        yield [Turn()]
    for request in batch.each():
        yield [Send(request)]


def metadata(
    context: ControllerContext, about: Iterable[Partition] = (), brokers: Sequence[int] | None = None
) -> Steps[None]:
    """Send UpdateMetadata with the live brokers and these partitions to these brokers (None: all reachable ones)."""
    batch = RequestBatch(context)
    batch.update_metadata(about, brokers)
    yield from send(batch)
