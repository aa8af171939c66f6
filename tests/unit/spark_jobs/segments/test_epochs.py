"""The epochs' answer, held against logs that are kept record by record."""

import random

from logyard.spark_jobs.segments.epochs import UNKNOWN, epoch_before, kept_until


def cache(log: list[int], start: int = 0) -> list[tuple[int, int]]:
    """The (epoch, first offset) of a log whose records have these epochs."""
    return [(e, o) for o, e in enumerate(log) if o >= start and (o == start or log[o - 1] != e)]


def test_the_epoch_before_an_offset() -> None:
    epochs = [(0, 0), (3, 10), (4, 12)]
    found = [epoch_before(epochs, offset) for offset in (0, 1, 10, 11, 12, 13, 99)]
    assert found == [UNKNOWN, 0, 0, 3, 3, 4, 4]
    assert epoch_before([], 5) == UNKNOWN == epoch_before([(4, 12)], 12)


def test_without_epochs_only_the_end_tells() -> None:
    assert kept_until([], 7, 9, UNKNOWN) == 7
    assert kept_until([(1, 3)], UNKNOWN, 9, UNKNOWN) == 9
    assert kept_until([], 20, 9, 4) == 9


def test_what_a_log_lost_and_wrote_anew_is_found() -> None:
    for seed in range(2_000):
        rng = random.Random(seed)
        log: list[int] = []
        epoch = 0
        for _ in range(rng.randrange(1, 4)):
            log += [epoch] * rng.randrange(6)
            epoch += rng.randrange(1, 3)
        if not log:
            continue
        read = rng.randrange(1, len(log) + 1)
        of = epoch_before(cache(log), read)
        assert of == log[read - 1]
        # Another leads: cleanly (it has all of it), or not (it is cut). It has an epoch of its own, and writes.
        cut = rng.choice([len(log), rng.randrange(len(log) + 1)])
        later = log[:cut] + [epoch] * rng.randrange(8)
        first = rng.randrange(min(cut, read) + 1)  # retention, of what both have
        epochs = cache(later, first) if later[first:] else []
        assert kept_until(epochs, len(later), read, of) == min(read, cut), (seed, log, later, read)
