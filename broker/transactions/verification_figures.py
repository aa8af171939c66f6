"""How long verifications take, and how many partitions fail: Kafka's VerificationTimeMs and VerificationFailureRate.

As in Kafka a verification is one transaction's question to its coordinator, from when it is put until it is answered,
the wait for an earlier request included; a failure is one partition that the answer refuses, whatever the error.
A question that no coordinator could be found for is neither.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 30_000)


class VerificationFigures:
    """Totals since the broker started. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.failures = 0
        self.sum_ms = 0.0
        self._counts = [0] * (len(BOUNDS_MS) + 1)

    def answered(self, begun_s: float, refused: int) -> None:
        """A question that was put at `begun_s` has its answer: that many of its partitions are refused."""
        taken_ms = (self.monotonic() - begun_s) * 1000
        self.failures += refused
        self.sum_ms += taken_ms
        self._counts[bisect_left(BOUNDS_MS, taken_ms)] += 1

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Of each bound in milliseconds, and of +Inf, how many took no longer."""
        total = 0
        for bound, count in zip([*map(str, BOUNDS_MS), "+Inf"], self._counts, strict=True):
            total += count
            yield bound, total
