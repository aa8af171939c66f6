"""Leader epochs tell whether a log still holds the records that were once read from it.

An offset alone does not: after an unclean election other records may stand at the same offsets, and right after any
election the high watermark lags. The leader epoch of the last record read does tell, as between a follower and its
leader (KIP-101).
"""

from collections.abc import Sequence

UNKNOWN = -1
Epochs = Sequence[tuple[int, int]]


def epoch_before(epochs: Epochs, offset: int) -> int:
    """Return the leader epoch of the record before `offset`, UNKNOWN if the epochs do not tell.

    :param epochs: the log's (epoch, first offset) in ascending order.
    """
    found = UNKNOWN
    for epoch, first in epochs:
        if first >= offset:
            break
        found = epoch
    return found


def kept_until(epochs: Epochs, log_end: int, offset: int, epoch: int) -> int:
    """Return the offset below which this log still holds the records before `offset`, the last of which had `epoch`.

    :param log_end: the log's end; UNKNOWN: ignored.
    :param epoch: UNKNOWN: only the log's end counts.

    `offset` itself if all of it is kept (or nothing tells otherwise).
    """
    kept = offset if log_end < 0 else min(offset, log_end)
    if epoch != UNKNOWN:
        kept = min(kept, next((first for later, first in epochs if later > epoch), kept))
    return kept
