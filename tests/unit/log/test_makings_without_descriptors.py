"""A log that cannot be made, since the process is out of file descriptors, leaves nothing for the next start."""

from collections.abc import Callable

import pytest

from logyard.broker.errors import StorageError
from logyard.broker.log.store import LogStore
from tests.support.moving_logs import A0, CONFIG, ONE, TOPIC_ID, TWO, House, settled

OPENINGS = range(8)
"""From none to more than either takes."""


def directories(house: House) -> list[str]:
    """Those of replicas, and of their copies."""
    found = [f"{root}/{entry.name}" for root in (ONE, TWO) for entry in house.disk.list(root)]
    return [path for path in found if path.rpartition("/")[2].startswith("a-0") and not path.endswith("-delete")]


def fails(house: House, openings: int, work: Callable[[], object]) -> bool:
    """Whether it fails with so many file descriptors."""
    house.disk.openings = openings
    try:
        work()
    except StorageError:
        return True
    finally:
        house.disk.openings = None
    return False


def make(store: LogStore, directory: str | None = None) -> None:
    store.logs.get_or_create(A0, TOPIC_ID, CONFIG, is_new=True, directory=directory)


@pytest.mark.parametrize("openings", OPENINGS)
async def test_a_replica_has_one_directory(openings: int) -> None:
    house = House()
    store = await house.start()
    fails(house, openings, lambda: make(store))
    if store.logs.get(A0) is None:
        assert directories(house) == []
    make(store, None if store.logs.get(A0) else TWO)
    await settled(store)
    assert len(directories(house)) == 1
    house.disk.restart()
    again = await house.start()
    assert again.logs.get(A0) is not None


@pytest.mark.parametrize("openings", OPENINGS)
async def test_a_move_that_cannot_begin_leaves_its_log_as_it_was(openings: int) -> None:
    house = House()
    store, log = await house.filled()
    if fails(house, openings, lambda: store.logs.begin_move(A0, TWO)):
        assert not log.is_moving
        assert directories(house) == [log.directory]
    store.logs.begin_move(A0, TWO)
    assert log.is_moving
    await settled(store)
    house.disk.restart()
    again = await house.start()
    assert again.logs.future(A0) is not None


async def test_none_are_too_few_and_the_most_are_enough() -> None:
    house = House()
    store = await house.start()
    assert fails(house, 0, lambda: make(store, ONE))
    assert not fails(house, OPENINGS[-1], lambda: make(store, ONE))
    assert fails(house, 0, lambda: store.logs.begin_move(A0, TWO))
    assert not fails(house, OPENINGS[-1], lambda: store.logs.begin_move(A0, TWO))
    await settled(store)


async def test_a_copy_with_files_that_is_given_up_goes_once_there_are_descriptors() -> None:
    """Its topic's id could not be written: its directory is not empty, and to remove it takes a descriptor."""
    house = House()
    store, _ = await house.filled()
    assert fails(house, 3, lambda: store.logs.begin_move(A0, TWO)), "its log and two indexes"
    (left,) = [entry.name for entry in house.disk.list(TWO) if entry.name.startswith("a-0")]
    assert left.endswith("-delete")
    await settled(store)
