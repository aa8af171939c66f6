"""Expiry of segments and producers: in pieces, each log by itself."""

import asyncio
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from logyard.broker import tasks
from logyard.broker.log import expiry, retention
from logyard.broker.log.expiry import Expiry
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import ProducerEntry
from tests.support.stores import A0, A1, CONFIG, ID, House, write


async def test_retention_takes_many_segments_in_pieces(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await house.loaded()
    log = store.logs.get_or_create(A0, ID, replace(CONFIG, segment_bytes=100), is_new=True)
    write(store, A0, 40)
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(log.log_end_offset)
    left = [len(log.segments)]
    looked_at: list[int] = []
    look = retention.candidate_of

    def candidate(of: PartitionLog, number: int) -> retention.Candidate:
        looked_at.append(number)
        return look(of, number)

    monkeypatch.setattr(retention, "candidate_of", candidate)

    async def paused() -> None:
        left.append(len(log.segments))

    await Expiry(house.clock, lambda: [log], paused).delete_old_segments()
    assert len(log.segments) == 1
    assert max(before - after for before, after in pairwise(left)) == 4
    assert len(looked_at) < left[0] + 8, "none again with each piece"
    assert log.size == sum(segment.size for segment in log.segments)


async def test_very_many_producers_expire_in_pieces(house: House) -> None:
    store = await house.loaded()
    logs = [store.logs.get_or_create(tp, ID, CONFIG, is_new=True) for tp in (A0, A1)]
    for log in logs:
        log.producers.replace(ProducerEntry(number, 0, last_timestamp=0) for number in range(20_000))
    left: list[int] = []

    async def paused() -> None:
        left.append(sum(len(log.producers) for log in logs))
        for log in logs:
            log.producers.remember(ProducerEntry(19_999, 0, last_timestamp=house.clock.now_ms()))

    await Expiry(house.clock, lambda: logs, paused).expire_producers(1000)
    assert [list(log.producers.entries) for log in logs] == [[19_999], [19_999]], "it has written meanwhile"
    assert max(before - after for before, after in pairwise([40_000, *left])) <= 10_000
    left.clear()
    await Expiry(house.clock, lambda: [logs[0]] * 200, paused).expire_producers(1000)
    assert len(left) >= 3, "many logs are work too"


async def test_what_goes_wrong_with_one_log_keeps_no_other_from_being_shortened(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await house.loaded()
    both = [store.logs.get_or_create(tp, ID, replace(CONFIG, segment_bytes=100), is_new=True) for tp in (A0, A1)]
    for log in both:
        write(store, log.tp, 8)
        log.set_high_watermark(log.log_end_offset)
        log.advance_log_start(log.log_end_offset)
    works = retention.delete_old_segments

    def delete(log: PartitionLog, now_ms: int, count_max: int) -> int:
        if log.tp == A0:
            raise ValueError("a bug")
        return works(log, now_ms, count_max)

    monkeypatch.setattr(expiry, "delete_old_segments", delete)
    before = tasks.failures.total()
    await Expiry(house.clock, lambda: both, partial(asyncio.sleep, 0)).delete_old_segments()
    assert [len(log.segments) > 1 for log in both] == [True, False]
    assert tasks.failures.total() == before + 1
