"""Leader epochs that are missing in the checkpoint, read from the batches themselves (KIP-101, facts §11).

When the log's start advances (DeleteRecords, retention), the epoch file is written at once, and the checkpoint of log
starts later. A process killed in between comes back with the records but without their epochs. A leader that serves
records with unknown epochs cannot tell a follower where their histories diverge.
"""

from collections.abc import Sequence
from contextlib import suppress

from logyard.broker.errors import CorruptData
from logyard.broker.log.leader_epochs import EpochEntry
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment

NEWER_THAN_ALL = 1 << 31
"""Greater than every epoch: stands for the epoch at the log's end if none is known."""


def down_to(start: int, segments: Sequence[Segment], oldest: EpochEntry) -> list[EpochEntry]:
    """Return `oldest`, the first known epoch, and before it the epochs of the batches below it, down to offset `start`.

    Oldest first; `oldest` begins earlier if its batches do. The search ends at a batch without an epoch (an old format)
    or with a later epoch than the batches above it. Segments are read from the newest down, headers only, so a log of
    an old format costs one segment. A damaged batch hides those after it in its segment.
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
    """Return the epochs of a segment's batches between two offsets, each with its start; False if a batch has none."""
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
