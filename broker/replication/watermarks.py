"""The rules of the high watermark and of the low watermark (facts §10).

Rule 1: a leader's high watermark never decreases, and does not move while the committed ISR is smaller than the
effective min.insync.replicas.
Rule 2: it is the smallest log end among the leader, the maximal ISR, and the followers about to join: caught up within
the lag, alive, and not refused by the controller. If it did not wait for the latter, a follower might never catch up
with it.
Rule 3: every end of a wait triggers a check. For members: their fetches and the controller (LeaderAndIsr, the answer to
an ISR change). For followers about to join: their fetches, their death in the metadata, the controller's refusal, and
the time from which they lag, which `held_until` returns.
"""

from collections.abc import Callable, Iterable

from logyard.broker.replication.isr import RemoteReplica


def effective_min_isr(min_insync_replicas: int, assigned: int) -> int:
    """The min.insync.replicas that count: topics with fewer replicas need only those they have (facts §10)."""
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
    """Return the leader's next high watermark, never below `current`. The caller checks min.insync.replicas."""
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
    """Whether the high watermark waits for a follower outside the ISR."""
    return not remote.is_refused and remote.is_caught_up(leader_end, now_ms, lag_max_ms) and is_alive(remote.id)


def held_until(
    leader_end: int,
    remotes: Iterable[RemoteReplica],
    maximal_isr: frozenset[int],
    now_ms: int,
    lag_max_ms: int,
    is_alive: Callable[[int], bool],
) -> int | None:
    """Return when the first of the followers about to join will lag; None if only the ISR holds the high watermark
    back."""
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
    """Return the leader's high watermark, limited to the follower's own log."""
    return max(log_start, min(leader_high_watermark, log_end))


def low_watermark(log_start: int, remotes: Iterable[RemoteReplica], is_alive: Callable[[int], bool]) -> int:
    """Return the offset below which every live replica has deleted its records."""
    lowest = log_start
    for remote in remotes:
        if remote.log_start_offset < lowest and is_alive(remote.id):
            lowest = remote.log_start_offset
    return lowest
