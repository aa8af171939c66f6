"""The meters of quotas: a rate over sampled windows, and a token bucket (KIP-13, KIP-599).

Both have no clock: the time is an argument. They compute as Kafka's `Rate` over `SampledStat` and its `TokenBucket`, so
that the same load under the same quota is throttled for the same time.
"""

from collections import deque


class SampledRate:
    """Units per second over the last `windows` windows of `window_ms`; missing windows count as empty.

    So the rate of a new client is over all windows but one: a short burst does not exceed the quota.
    """

    __slots__ = ("_samples", "_total", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()  # [start in ms, last event in ms, units], oldest first
        self._total = 0.0

    def record(self, units: float, now_ms: float) -> None:
        """Count `units`; negative ones are subtracted."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, now_ms, 0.0])
            if len(self._samples) > self._windows + 1:
                self._total -= self._samples.popleft()[2]
        sample = self._samples[-1]
        sample[1] = now_ms
        sample[2] += units
        self._total += units

    def elapsed_ms(self, now_ms: float) -> float:
        """Return the time that the rate is over: at least all windows but one, and a millisecond."""
        self._drop_old(now_ms)
        elapsed = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._windows - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)

    def per_second(self, now_ms: float) -> float:
        """Return the current rate."""
        elapsed = self.elapsed_ms(now_ms)
        return self._total * 1000 / elapsed

    @property
    def sample_count(self) -> int:
        return len(self._samples)

    def is_idle(self, now_ms: float) -> bool:
        """Whether all that was counted is too old to matter."""
        self._drop_old(now_ms)
        return not self._samples

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """Return how many milliseconds to wait until the rate is down to `bound`; 0 if it is not above.

        For a time W, an observed rate O and a target T, the delay X is given by O * W / (W + X) = T. For a negative
        target it is negative: nobody waits, as in Kafka.
        """
        observed = self.per_second(now_ms)
        if observed <= bound or bound < 0:
            return 0
        return round((observed - bound) / max(bound, 1e-9) * self.elapsed_ms(now_ms))

    def _drop_old(self, now_ms: float) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][1] >= self._windows * self._window_ms:
            self._total -= samples.popleft()[2]
        if not samples:
            self._total = 0.0


class TokenBucket:
    """A bucket that is filled at a rate, up to that rate times all windows; while it is overdrawn, it throttles."""

    __slots__ = ("_burst_s", "_tokens", "_updated_ms")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._burst_s = windows * window_ms / 1000
        self._tokens = float("inf")  # full, at whatever rate
        self._updated_ms = 0.0

    def tokens(self, rate: float, now_ms: float) -> float:
        """Return the tokens in the bucket; below zero it is overdrawn."""
        burst = self._burst_s * rate
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, units: float, rate: float, now_ms: float) -> None:
        """Take `units` out, even if it is overdrawn then; negative ones are put back."""
        self._tokens = min(self._burst_s * rate, self.tokens(rate, now_ms) - units)

    def throttle_ms(self, rate: float, now_ms: float) -> int:
        """Return how many milliseconds it takes until the bucket is no longer overdrawn."""
        tokens = self.tokens(rate, now_ms)
        return 0 if tokens >= 0 else round(-tokens * 1000 / max(rate, 1e-9))

    def is_idle(self, now_ms: float) -> bool:
        """Whether it is full again."""
        return now_ms - self._updated_ms >= self._burst_s * 1000 and self._tokens >= 0
