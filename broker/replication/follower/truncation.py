"""What a follower cuts off its log before it may go on: KIP-101, KIP-279, KIP-320 (facts §11).

Rule 1: what the leader's answer says of an epoch is compared with the follower's own end of that epoch; the
smaller wins, and nothing is ever cut above one's own log end.
Rule 2: an epoch the follower never saw only narrows the search: cut to the end of the largest smaller one and ask
(or fetch) again.
Rule 3: a leader that does not have the follower's epoch (Kafka keeps none for a topic of message format v0 or v1)
proves nothing by it: what lies above the high watermark goes, as from a log without epochs.
"""

from dataclasses import dataclass

from logyard.broker.replication.ports import EpochIndex

UNDEFINED = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cut the log to `offset`; `done` False: the leader has to be asked again from there."""

    offset: int
    done: bool


def truncation(leader_epoch: int, leader_end: int, epochs: EpochIndex, log_end: int, high_watermark: int) -> Truncation:
    """Where to cut, given the leader's (epoch, end offset) for an epoch of ours.

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
    """How to go on after OFFSET_OUT_OF_RANGE: fetch at `offset`, after cutting to it, or dropping all before it.

    `forget`: without epochs.
    """

    offset: int
    truncate: bool = False
    restart: bool = False
    forget: bool = False


def out_of_range(own_end: int, leader_end: int, leader_start: int, high_watermark: int, epoch: int) -> OutOfRange:
    """The leader is shorter (unclean election): cut to its end. Else go on, from its start if we are behind that.

    Where it has the offset, what it does not have is the `epoch` that was told with it (UNDEFINED: none was). Kafka's
    follower would ask the same for ever; it never comes to that, as it keeps no epochs of such a topic itself.
    """
    if leader_end < own_end:
        return OutOfRange(leader_end, truncate=True)
    if leader_start > own_end:
        return OutOfRange(leader_start, restart=True)
    if epoch != UNDEFINED:
        return OutOfRange(min(high_watermark, own_end), truncate=True, forget=True)
    return OutOfRange(own_end)


def first_fetch_offset(epochs: EpochIndex, log_end: int, high_watermark: int) -> int:
    """Where a new follower starts: at its log's end if epochs can prove a divergence, else at its high watermark."""
    return log_end if epochs.latest is not None else high_watermark
