"""`__consumer_offsets` read back from a real log while the built-in cleaner, or a failing disk, is at it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import StorageError
from logyard.broker.groups.offsets_log import ReplicatedOffsets
from logyard.broker.groups.ports import KeyValue, StoredBatch
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.model import OFFSETS_TOPIC
from logyard.broker.replication.internal_log import READS_IN_VAIN_MAX
from logyard.broker.replication.replicas import Replicas
from tests.support.logs import NOW, new_log, produced

BATCHES = 5


class Offsets:
    """The log of one offsets partition; `before` is done before each read from the disk."""

    def __init__(self, before: Callable[[], None]) -> None:
        self.log = new_log()
        for number in range(BATCHES):
            self.log.append_as_leader(produced([b"v%d" % number], key=b"k%d" % number), 0, now_ms=NOW)
        self.reads = 0
        self.notes: list[str] = []

        def run_blocking(work: Callable[[], Any]) -> Any:
            self.reads += 1
            before()
            done = asyncio.get_running_loop().create_future()
            done.set_result(work())
            return done

        replicas = SimpleNamespace(partition=lambda tp: SimpleNamespace(log=self.log))
        one = Partitioning(MetadataCache(), OFFSETS_TOPIC, lambda: 1)
        self.store = ReplicatedOffsets(cast(Replicas, replicas), one, ManualClock(), run_blocking)

    async def all(self) -> list[KeyValue]:
        return [record for batch in await self.batches() for record in batch.records]

    async def batches(self) -> list[StoredBatch]:
        found: list[StoredBatch] = []
        await self.store.read(0, found.append, self.notes.append)
        return found


async def test_everything_is_read() -> None:
    assert await Offsets(lambda: None).all() == [(b"k%d" % n, b"v%d" % n) for n in range(BATCHES)]


async def test_a_read_that_a_compaction_overtook_is_done_again() -> None:
    """Ending there would serve groups without the offsets that were not read."""

    def compacted() -> None:
        if offsets.reads in (1, 2):
            offsets.log.segments.cuts += 1  # as a swap counts: the bytes lie elsewhere now

    offsets = Offsets(compacted)
    assert len(await offsets.all()) == BATCHES
    assert offsets.reads == 3


async def test_what_can_never_be_read_is_given_up() -> None:
    def compacted() -> None:
        offsets.log.segments.cuts += 1

    offsets = Offsets(compacted)
    with pytest.raises(StorageError, match="__consumer_offsets-0 cannot be read from offset 0 on"):
        await offsets.all()
    assert offsets.reads == READS_IN_VAIN_MAX


def test_the_longest_batch_is_that_of_the_log() -> None:
    offsets = Offsets(lambda: None)
    assert offsets.store.batch_bytes_max(0) == offsets.log.config.max_message_bytes == 1_048_588
