"""Leader epochs that the checkpoint does not know, read from the batches themselves (KIP-101, facts §11).

A cut at the log's start (DeleteRecords, retention) goes to the epoch file at once, and to the checkpoint of the log's
start later. A process killed in between comes back with the records and without their epochs; a leader that serves
records whose epochs it does not know cannot tell a follower where the follower's history parts from its own.
"""

from collections.abc import Sequence
from contextlib import suppress

from logyard.broker.errors import CorruptData
from logyard.broker.log.leader_epochs import EpochEntry
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment

NEWER_THAN_ALL = 1 << 31
"""Stands for the epoch behind a log's end where no epoch is known at all."""


def down_to(start: int, segments: Sequence[Segment], oldest: EpochEntry) -> list[EpochEntry]:
    """Return `oldest`, the first epoch known, with the epochs of the batches below it down to offset `start`.

    Oldest first; `oldest` begins earlier where its batches do. Nothing below a batch counts that names no epoch (an old
    format) or a later one than what is above it. Segments are read from the newest down, headers only, so a log of an
    old format costs one segment. A damaged batch hides what lies behind it in its segment.
    """
    found = [oldest]
    for segment in reversed(segments):
        if segment.base_offset >= oldest.start_offset:
            continue
        runs, whole = _runs(segment, start, oldest.start_offset)
        if segment is not segments[-1]:
            segment.release()
        for run in reversed(runs):
            if run.epoch > found[0].epoch:
                return found
            found[: run.epoch == found[0].epoch] = [run]
        if not whole or segment.base_offset <= start:
            break
    return found


def _runs(segment: Segment, start: int, end: int) -> tuple[list[EpochEntry], bool]:
    """The epochs of a segment's batches between two offsets, each where it begins; False where a batch names none."""
    runs: list[EpochEntry] = []
    whole = True
    with suppress(CorruptData):
        for _, header in scan.headers(segment.read, 0, segment.size):
            epoch = header.partition_leader_epoch
            if header.base_offset >= end:
                break
            if epoch < 0:
                runs, whole = [], False
            elif header.last_offset >= start and (not runs or runs[-1].epoch != epoch):
                runs.append(EpochEntry(epoch, max(start, header.base_offset)))
    return runs, whole
