"""Cuts of a log while file descriptors run out: each is done as a whole, or changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log import layout
from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.store import LogStore, StoreSettings
from logyard.broker.records.decode import ABORT
from tests.support.logs import NOW, content, fill, marker, produced
from tests.support.stores import A0, ID, ONE, House

CONFIG = TopicConfig(segment_bytes=1000, index_interval_bytes=100)
SETTINGS = StoreSettings((ONE,))

Cut = Callable[[PartitionLog], object]


async def filled(house: House) -> tuple[LogStore, PartitionLog]:
    """A log of several segments, epochs, producers and aborted transactions, with entries in all checkpoints."""
    house.config = CONFIG
    store = await house.loaded(SETTINGS)
    log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
    for epoch in range(6):
        fill(log, 5, epoch=epoch)
        data = produced([b"x"], producer_id=7, producer_epoch=0, base_sequence=epoch, transactional=True)
        log.append_as_leader(data, epoch, now_ms=NOW)
        abort = marker(ABORT, producer_id=7)
        log.append_as_leader(abort, epoch, now_ms=NOW, origin=Origin.COORDINATOR)
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    log.advance_log_start(3)
    await store.set_cleaner_offset(A0, log.log_end_offset)
    for name in layout.CHECKPOINTS:
        await store.checkpoints.write_everywhere(name)
    return store, log


def state(log: PartitionLog) -> tuple[Any, ...]:
    """All that a cut may change."""
    files = log.disk.list(log.directory)
    sizes = {
        entry.name: log.disk.status(f"{log.directory}/{entry.name}").size
        for entry in files
        if not entry.name.endswith(".tmp")
    }
    offsets = log.log_start_offset, log.log_end_offset, log.high_watermark
    producers = None if log.pending_reload else dict(log.producers.entries)
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    return content(log), offsets, log.epochs.entries, aborted, producers, sizes


async def outcome(cut: Cut, openings: int | None) -> bool:
    """Cut a log while so many files can be opened; returns whether it was cut. What is there, is there after a kill."""
    house = House()
    store, log = await filled(house)
    before = state(log)
    house.disk.openings = openings
    is_cut = True
    try:
        cut(log)
    except DiskError:
        is_cut = False
    house.disk.heal()
    assert house.offline == []
    if not is_cut:
        assert state(log) == before
        assert house.cuts == []
        cut(log)
    assert house.cuts == [(A0, log.log_end_offset)]
    log.want_producers()
    fill(log, 8, epoch=9)
    after = state(log)
    await store.abandon()
    house.disk.restart()
    again = (await house.loaded(SETTINGS)).logs.current[A0]
    assert (content(again), again.epochs.entries) == (after[0], after[2])
    assert again.producers.entries.keys() == log.producers.entries.keys()
    await house.stores[-1].abandon()
    return is_cut


@pytest.mark.parametrize(
    "cut",
    [
        lambda log: log.truncate_fully(500),
        lambda log: log.truncate_fully(log.segments[0].base_offset),
        lambda log: log.truncate_fully(log.segments[1].base_offset),
        lambda log: log.truncate_to(log.log_end_offset - 3),
        lambda log: log.truncate_to(log.segments[1].base_offset + 5),
        lambda log: log.truncate_to(1),
    ],
    ids=["begun anew above", "begun anew at its base", "begun anew within", "a little", "segments", "below its start"],
)
async def test_it_is_done_or_changes_nothing(cut: Cut) -> None:
    refused = 0
    while not await outcome(cut, refused):
        refused += 1
    assert refused >= 5
