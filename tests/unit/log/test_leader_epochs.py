"""The leader epoch cache (facts §11)."""

import errno
from collections.abc import Callable, Sequence

import pytest

from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.leader_epochs import EpochCache, EpochEntry, EpochRun, reconcile


def cache(*entries: tuple[int, int], end: int = 100) -> EpochCache:
    return EpochCache([EpochEntry(*entry) for entry in entries], log_end_offset=lambda: end)


def test_assign_drops_what_it_contradicts() -> None:
    epochs = cache((1, 0), (3, 10), (5, 20))
    epochs.assign(5, 30)
    assert epochs.entries == ((1, 0), (3, 10), (5, 20))
    epochs.assign(7, 15)
    assert epochs.entries == ((1, 0), (3, 10), (7, 15))
    epochs.assign(7, 12)
    assert epochs.entries == ((1, 0), (3, 10), (7, 12))
    epochs.assign(2, 50)
    assert epochs.entries == ((1, 0), (2, 50))
    epochs.assign(9, 0)
    assert epochs.entries == ((9, 0),)
    with pytest.raises(ValueError, match="negative"):
        epochs.assign(-1, 0)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (1, (1, 5)),  # older than all known: ends where the first one starts
        (2, (2, 10)),
        (3, (2, 10)),  # never here: the largest below it
        (4, (4, 20)),
        (6, (6, 100)),  # latest: the log's end
        (7, (-1, -1)),
    ],
)
def test_end_offset_for(asked: int, answer: tuple[int, int]) -> None:
    assert cache((2, 5), (4, 10), (6, 20)).end_offset_for(asked) == answer


def test_end_offset_of_an_empty_cache_is_undefined() -> None:
    assert cache().end_offset_for(0) == (-1, -1)
    assert cache().latest is None


def test_epoch_of() -> None:
    epochs = cache((2, 5), (4, 10))
    assert [epochs.epoch_of(offset) for offset in (4, 5, 9, 10, 99)] == [None, 2, 2, 4, 4]


def test_truncations() -> None:
    epochs = cache((1, 0), (3, 10), (5, 20))
    epochs.truncate_from_end(20)
    assert epochs.entries == ((1, 0), (3, 10))
    epochs.truncate_from_end(11)
    assert epochs.entries == ((1, 0), (3, 10))
    epochs.truncate_from_start(4)
    assert epochs.entries == ((1, 4), (3, 10))
    epochs.truncate_from_start(10)
    assert epochs.entries == ((3, 10),)
    epochs.truncate_from_start(99)
    assert epochs.entries == ((3, 99),)
    epochs.clear()
    assert epochs.entries == ()


def test_every_change_and_only_a_change_is_saved() -> None:
    saved: list[tuple[EpochEntry, ...]] = []
    epochs = EpochCache(log_end_offset=lambda: 0, save=lambda entries: saved.append(tuple(entries)))
    epochs.assign(1, 0)
    epochs.assign(1, 5)
    epochs.truncate_from_end(1)
    epochs.truncate_from_start(0)
    epochs.truncate_from_start(3)
    epochs.truncate_from_end(3)
    assert saved == [((1, 0),), ((1, 3),), ()]


@pytest.mark.parametrize(
    ("entries", "runs", "expected"),
    [
        # As written; below the part that was read again everything stands.
        ([(0, 0), (2, 50), (4, 120)], [(2, 100, 119), (4, 120, 130)], [(0, 0), (2, 50), (4, 120)]),
        # Nothing in the file: from the batches.
        ([], [(2, 100, 119), (4, 120, 130)], [(2, 100), (4, 120)]),
        # The front of an epoch, or all of it, was compacted away: its start stands.
        ([(2, 100), (3, 110), (4, 120)], [(2, 105, 107), (4, 125, 130)], [(2, 100), (3, 110), (4, 120)]),
        # Cut off by a truncation: batches of a later epoch lie before it, or of an earlier one behind.
        ([(0, 0), (3, 120)], [(0, 100, 109), (4, 110, 130)], [(0, 0), (4, 110)]),
        ([(0, 0), (5, 115)], [(4, 100, 119), (6, 120, 130)], [(0, 0), (4, 100), (6, 120)]),
        # Nothing was written under it: another epoch begins there, or the log ends.
        ([(0, 0), (5, 120)], [(4, 100, 119), (6, 120, 130)], [(0, 0), (4, 100), (6, 120)]),
        ([(0, 0), (5, 120)], [(4, 100, 119)], [(0, 0), (4, 100)]),
    ],
)
def test_reconcile(
    entries: list[tuple[int, int]], runs: list[tuple[int, int, int]], expected: list[tuple[int, int]]
) -> None:
    found = reconcile([EpochEntry(*entry) for entry in entries], [EpochRun(*run) for run in runs], 100)
    assert found == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda epochs: epochs.assign(3, 30),
        lambda epochs: epochs.follow([(3, 30)]),
        lambda epochs: epochs.truncate_from_end(15),
        lambda epochs: epochs.truncate_from_start(15),
        lambda epochs: epochs.adopt([EpochEntry(4, 0)]),
        lambda epochs: epochs.clear(),
    ],
    ids=["assign", "follow", "from end", "from start", "adopt", "clear"],
)
def test_a_change_that_cannot_be_saved_is_made_and_saved_by_the_next_try(change: Callable[[EpochCache], None]) -> None:
    saved: list[tuple[EpochEntry, ...]] = []

    def save(entries: Sequence[EpochEntry]) -> None:
        if not saved:
            saved.append(())
            raise DiskError("leader-epoch-checkpoint", OSError(errno.EMFILE, "too many open files"))
        saved.append(tuple(entries))

    before = (EpochEntry(1, 0), EpochEntry(2, 20))
    epochs = EpochCache(before, log_end_offset=lambda: 40, save=save)
    with pytest.raises(DiskError):
        change(epochs)
    assert epochs.entries == before
    change(epochs)
    assert epochs.entries == saved[-1] != before
