"""Where committed ends: the rules of the high watermark and of the low watermark (facts §10).

Rule 1: on a leader the high watermark never goes back, and does not move while the committed ISR is smaller than
the effective min.insync.replicas.
Rule 2: it is the smallest log end among the leader, the maximal ISR, and those that are about to join: caught up
within the lag, alive, and not refused by the controller. Without the latter a follower would chase the watermark and
never catch it.
Rule 3: whatever holds it back also wakes it. Members: their fetches and the controller's word (LeaderAndIsr, the answer
to an ISR change). Who is about to join: its fetches, its death in the metadata, the controller's refusal, and the
moment from which it lags, which `held_until` tells.
"""

from collections.abc import Callable, Iterable

from logyard.broker.replication.isr import RemoteReplica


def effective_min_isr(min_insync_replicas: int, assigned: int) -> int:
    """Topics with fewer replicas than min.insync.replicas need only those they have (facts §10)."""
    return min(min_insync_replicas, assigned) if assigned else min_insync_replicas


def leader_high_watermark(
    current: int,
    leader_end: int,
    remotes: Iterable[RemoteReplica],
    maximal_isr: frozenset[int],
    now_ms: Callable[[], int],
    lag_max_ms: int,
    is_alive: Callable[[int], bool],
) -> int:
    """The leader's next high watermark, never below `current`. The min-ISR gate is the caller's."""
    lowest = leader_end
    for remote in remotes:
        end = remote.log_end_offset
        if end < lowest and (
            remote.id in maximal_isr or is_joining(remote, leader_end, now_ms(), lag_max_ms, is_alive)
        ):
            if end <= current:
                return current
            lowest = end
    return max(current, lowest)


def is_joining(
    remote: RemoteReplica, leader_end: int, now_ms: int, lag_max_ms: int, is_alive: Callable[[int], bool]
) -> bool:
    """Whether a follower outside the ISR is to be waited for."""
    return not remote.is_refused and remote.is_caught_up(leader_end, now_ms, lag_max_ms) and is_alive(remote.id)


def held_until(
    leader_end: int,
    remotes: Iterable[RemoteReplica],
    maximal_isr: frozenset[int],
    now_ms: int,
    lag_max_ms: int,
    is_alive: Callable[[int], bool],
) -> int | None:
    """The first moment at which one of those that are about to join will lag; None: the ISR alone holds it back."""
    return min(
        (
            remote.last_caught_up_ms + lag_max_ms + 1
            for remote in remotes
            if remote.log_end_offset < leader_end
            and remote.id not in maximal_isr
            and is_joining(remote, leader_end, now_ms, lag_max_ms, is_alive)
        ),
        default=None,
    )


def follower_high_watermark(leader_high_watermark: int, log_start: int, log_end: int) -> int:
    """A follower believes its leader as far as its own log goes."""
    return max(log_start, min(leader_high_watermark, log_end))


def low_watermark(log_start: int, remotes: Iterable[RemoteReplica], is_alive: Callable[[int], bool]) -> int:
    """The offset below which every living replica has deleted its records."""
    lowest = log_start
    for remote in remotes:
        if remote.log_start_offset < lowest and is_alive(remote.id):
            lowest = remote.log_start_offset
    return lowest
