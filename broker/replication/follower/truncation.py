"""How much a follower truncates its log before it can continue: KIP-101, KIP-279, KIP-320 (facts §11).

Rule 1: the leader's end of an epoch is compared with the follower's own end of that epoch; the smaller counts, and a
log is never cut above its own end.
Rule 2: an epoch that the follower never saw only narrows the search: cut to the end of the largest smaller one and ask
(or fetch) again.
Rule 3: a leader without the follower's epoch (Kafka keeps none for a topic of message format v0 or v1) proves nothing
by it: everything above the high watermark is removed, as in a log without epochs.
"""

from dataclasses import dataclass

from logyard.broker.replication.ports import EpochIndex

UNDEFINED = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cut the log to `offset`; if not `done`, the leader has to be asked again from there."""

    offset: int
    done: bool


def truncation(leader_epoch: int, leader_end: int, epochs: EpochIndex, log_end: int, high_watermark: int) -> Truncation:
    """Return where to cut, given the leader's (epoch, end offset) for an epoch of ours.

    The pair comes from DivergingEpoch in a Fetch answer or from OffsetForLeaderEpoch.
    """
    if leader_end == UNDEFINED:
        return Truncation(min(high_watermark, log_end), done=True)
    if leader_epoch == UNDEFINED:
        return Truncation(min(leader_end, log_end), done=True)
    own_epoch, own_end = epochs.end_offset_for(leader_epoch)
    if own_epoch == UNDEFINED and own_end == UNDEFINED:
        return Truncation(min(leader_end, log_end), done=True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end, log_end), done=False)
    return Truncation(min(own_end, leader_end, log_end), done=True)


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """How to continue after OFFSET_OUT_OF_RANGE: fetch at `offset`, after cutting to it, or dropping everything before
    it.

    `forget`: continue without epochs.
    """

    offset: int
    truncate: bool = False
    restart: bool = False
    forget: bool = False


def out_of_range(own_end: int, leader_end: int, leader_start: int, high_watermark: int, epoch: int) -> OutOfRange:
    """If the leader's log is shorter (unclean election), cut to its end. Otherwise continue, at its start if we are
    below that.

    If the leader has the offset, it does not know the `epoch` that was sent with it (UNDEFINED: none was). Kafka's
    follower would repeat that request for ever, but never gets there, as it keeps no epochs of such a topic itself.
    """
    if leader_end < own_end:
        return OutOfRange(leader_end, truncate=True)
    if leader_start > own_end:
        return OutOfRange(leader_start, restart=True)
    if epoch != UNDEFINED:
        return OutOfRange(min(high_watermark, own_end), truncate=True, forget=True)
    return OutOfRange(own_end)


def first_fetch_offset(epochs: EpochIndex, log_end: int, high_watermark: int) -> int:
    """Return where a new follower starts: at its log's end if epochs can prove a divergence, else at its high
    watermark."""
    return log_end if epochs.latest is not None else high_watermark
