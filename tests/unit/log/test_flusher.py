"""Flusher: flushes that are refused for a while, and those that fail."""

import errno

import pytest

from logyard.broker.log import flusher
from logyard.broker.log.settings import StoreSettings
from tests.support.stores import A0, CONFIG, ID, ONE, House, settled, until, write


class TestRefusedFlush:
    async def test_out_of_descriptors_it_is_tried_again(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flusher, "RETRY_S", 0.001)
        store = await house.loaded(StoreSettings((ONE,)))
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 40)
        house.disk.fail(log.directory, errno.EMFILE)
        store.start()
        await settled()
        assert log.recovery_point == 0
        house.disk.heal()
        await until(lambda: log.recovery_point == log.segments.active.base_offset > 0)
        assert house.offline == []

    async def test_a_cut_that_is_not_flushed_yet_is_flushed_as_a_whole(self, house: House) -> None:
        store = await house.loaded(StoreSettings((ONE,)))
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 10)
        log.truncate_to(14)
        house.disk.fail(log.directory, errno.EMFILE)
        await store.flusher.flush_waiting()
        house.disk.heal()
        await store.flusher.flush_waiting()
        assert log.recovery_point == 14

    async def test_an_error_of_the_disk_takes_its_directory_offline(self, house: House) -> None:
        store = await house.loaded(StoreSettings((ONE,)))
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 40)
        house.disk.fail(log.directory)
        await store.flusher.flush_waiting()
        await settled()
        assert house.offline == [(ONE, [A0])]
        house.disk.heal()
        await store.flusher.flush_waiting()
        assert log.recovery_point == 0
