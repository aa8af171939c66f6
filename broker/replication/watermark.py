"""Where committed ends: the rules of the high watermark and of the low watermark (facts §10, §21b).

Rule 1: on a leader the high watermark never goes back, and does not move while the committed ISR is smaller than
the effective min.insync.replicas.
Rule 2: it is the smallest log end among the leader, the maximal ISR, and those that are about to join: caught up
within the lag and alive. Without the latter a follower would chase the watermark and never catch it.
"""

from collections.abc import Callable, Iterable

from logyard.broker.replication.isr import RemoteReplica


def effective_min_isr(min_insync_replicas: int, assigned: int) -> int:
    """Topics with fewer replicas than min.insync.replicas need only those they have (facts §21b)."""
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
            remote.id in maximal_isr or (remote.is_caught_up(leader_end, now_ms(), lag_max_ms) and is_alive(remote.id))
        ):
            if end <= current:
                return current
            lowest = end
    return max(current, lowest)


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
