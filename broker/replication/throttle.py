"""Replication throttles: limits on the rate of listed replicas (KIP-73, facts §18).

Rule 1: only replicas in the topic's list (`partition:broker`, or `*`) are counted and throttled.
Rule 2: a leader never throttles a follower in the ISR, and a follower never throttles itself once caught up.
"""

from collections import deque

UNLIMITED = 2**63 - 1


class ByteRate:
    """Bytes per second over the last windows: Kafka's `SimpleRate`, without empty windows before the first byte."""

    __slots__ = ("_count", "_total", "_window_ms", "_windows")

    def __init__(self, windows: int = 11, window_ms: int = 1_000) -> None:
        self._count = windows
        self._window_ms = window_ms
        self._windows: deque[list[int]] = deque()  # [start in ms, bytes], oldest first
        self._total = 0

    def record(self, size: int, now_ms: int) -> None:
        """Count `size` bytes."""
        self._drop_old(now_ms)
        if not self._windows or now_ms - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now_ms, 0])
        self._windows[-1][1] += size
        self._total += size

    def per_second(self, now_ms: int) -> float:
        """Return the rate in bytes per second; less than one window counts as one."""
        self._drop_old(now_ms)
        if not self._windows:
            return 0.0
        elapsed = max(self._window_ms, now_ms - self._windows[0][0])
        return self._total * 1000 / elapsed

    def _drop_old(self, now_ms: int) -> None:
        windows = self._windows
        while windows and now_ms - windows[0][0] >= self._count * self._window_ms:
            self._total -= windows.popleft()[1]


def is_listed(throttled: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this partition on this broker."""
    return bool(throttled) and ("*" in throttled or f"{partition}:{broker_id}" in throttled)
