"""The arithmetic of quotas: a rate over sampled windows, and a bucket of tokens (KIP-13, KIP-599).

Both take the time as an argument and keep no clock. The rules are those of Kafka's `Rate` over `SampledStat` and of its
`TokenBucket`, so that the same load under the same quota is held back for the same time.
"""

from collections import deque


class SampledRate:
    """Units per second over the last `windows` windows of `window_ms`; windows that were never begun count as empty.

    The first seconds of a client are therefore divided by all windows but one: a burst is allowed, its sum is not.
    """

    __slots__ = ("_samples", "_total", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()  # [start in ms, last event in ms, units], oldest first
        self._total = 0.0

    def record(self, units: float, now_ms: float) -> None:
        """Count `units` now; negative ones take back what was counted."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, now_ms, 0.0])
            if len(self._samples) > self._windows + 1:
                self._total -= self._samples.popleft()[2]
        sample = self._samples[-1]
        sample[1] = now_ms
        sample[2] += units
        self._total += units

    def elapsed_ms(self, now_ms: float) -> float:
        """What the total is divided by: at least all windows but one, never less than a millisecond."""
        self._drop_old(now_ms)
        elapsed = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._windows - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)

    def per_second(self, now_ms: float) -> float:
        """Return the rate as it is now."""
        elapsed = self.elapsed_ms(now_ms)
        return self._total * 1000 / elapsed

    @property
    def sample_count(self) -> int:
        return len(self._samples)

    def is_idle(self, now_ms: float) -> bool:
        """Whether nothing of what was counted still matters."""
        self._drop_old(now_ms)
        return not self._samples

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long to wait until the rate is back at `bound`, if nothing more is counted; 0 while it is not above.

        Over a window of W the delay X brings the observed O down to the target T: O * W / (W + X) = T.
        """
        observed = self.per_second(now_ms)
        if observed <= bound:
            return 0
        return round((observed - bound) / max(bound, 1e-9) * self.elapsed_ms(now_ms))

    def _drop_old(self, now_ms: float) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][1] >= self._windows * self._window_ms:
            self._total -= samples.popleft()[2]
        if not samples:
            self._total = 0.0


class TokenBucket:
    """Tokens that come back at a rate, up to the burst of all windows; overdrawn, it refuses until it is not."""

    __slots__ = ("_burst_s", "_tokens", "_updated_ms")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._burst_s = windows * window_ms / 1000
        self._tokens = float("inf")  # full, whatever the first rate turns out to be
        self._updated_ms = 0.0

    def tokens(self, rate: float, now_ms: float) -> float:
        """Return what is in the bucket; below zero it is overdrawn."""
        burst = self._burst_s * rate
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, units: float, rate: float, now_ms: float) -> None:
        """Take `units` out, overdrawing it if need be; negative ones are put back."""
        self._tokens = min(self._burst_s * rate, self.tokens(rate, now_ms) - units)

    def throttle_ms(self, rate: float, now_ms: float) -> int:
        """How long until it is no longer overdrawn."""
        tokens = self.tokens(rate, now_ms)
        return 0 if tokens >= 0 else round(-tokens * 1000 / max(rate, 1e-9))

    def is_idle(self, now_ms: float) -> bool:
        """Whether it has had the time to fill up again."""
        return now_ms - self._updated_ms >= self._burst_s * 1000 and self._tokens >= 0
