"""The built-in cleaner over a `LeaseWorld`: real leases and commits, the cleaning done on the spot.

    async with LeaseWorld() as world:
        fill(world.lead(), 60)
        worker = Worker(world)
        assert await cleaner_of(world, worker).clean_next(worker)

`worker.before` runs before each cleaning, `worker.answers` are given instead of one, and `worker.requests` counts.
Other ports than the world's are keywords: `cleaner_of(world, worker, clean_offset=...)`.
"""

from dataclasses import replace
from typing import Any

from logyard.broker.cleaner import plain_passes
from logyard.broker.cleaner.cleaner import CleanerPorts, LogCleaner
from logyard.broker.cleaner.passes import Engine
from logyard.broker.cleaner.settings import CleanerSettings
from logyard.broker.cleaner.worker import InProcess
from tests.support.lease_world import LeaseWorld


class Worker(InProcess):
    """Counts what it is asked for; `before` runs first, and may get in the way."""

    def __init__(self, world: LeaseWorld, engine: Engine = plain_passes.ENGINE) -> None:
        super().__init__(world.disk, engine)
        self.requests: list[Any] = []
        self.ends = 0
        self.before: Any = lambda: None
        self.answers: list[Any] = []

    async def clean(self, request: Any) -> Any:
        self.requests.append(request)
        self.before()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await super().clean(request)

    async def end(self) -> None:
        self.ends += 1


def cleaner_of(world: LeaseWorld, worker: Worker, settings: CleanerSettings | None = None, **others: Any) -> LogCleaner:
    """A cleaner that has not started: `clean_next` is called by hand. `others` are ports to take instead."""
    ports = CleanerPorts(
        logs=world.store.logs.all_current,
        find=world.store.logs.get,
        clean_offset=world.leases.clean_offset,
        is_held=world.leases.book.is_being_compacted,
        lease_service=world.lease_service,
        clock=world.clock,
        run_blocking=world.ports.run_blocking,
        open_worker=lambda: worker,
    )
    return LogCleaner(replace(ports, **others), settings or CleanerSettings())
