"""The sequential notification znodes: those of brokers for the controller, and one of the controller for brokers."""

from collections.abc import Sequence

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Steps
from logyard.broker.controller.events import Event
from logyard.broker.znodes.ops import Delete


def take(parent: str, again: Event) -> Steps[dict[str, bytes]]:
    """Watch the parent (it queues `again`) and read its children: path → data, oldest first."""
    names = yield from effects.watch_children(parent, again)
    paths = [f"{parent}/{name}" for name in sorted(names or [])]
    znodes = yield from effects.read(paths)
    return {path: znode.data for path, znode in zip(paths, znodes, strict=True) if znode is not None}


def remove(context: ControllerContext, paths: Sequence[str]) -> Steps[None]:
    """Delete notifications; a missing one is no error."""
    yield from fencing.write(context, [[Delete(path)] for path in paths])


def clear(context: ControllerContext, parent: str) -> Steps[None]:
    """Delete all notifications without reading them."""
    names = (yield from effects.children([parent]))[0]
    yield from remove(context, [f"{parent}/{name}" for name in names or []])
