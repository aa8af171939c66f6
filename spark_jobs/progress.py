"""How far a job is, for whoever follows its log: a line as each partition is done and now and then between, or, of
files, now and then and at the end.

Driver and tasks share no disk that could tell: what tasks have done is heard when they end.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

EVERY_S = 5.0
MEGABYTE = 1_000_000
PARTITIONS, FILES = "partitions", "files"


class Progress:
    """Counts bytes by partition or file; `say` gets lines such as

    `audit: t-3 done; 4 of 12 partitions, 310.0 of 900.0 MB (34 %), 29.0 MB/s, about 21 s left`.
    """

    def __init__(
        self,
        what: str,
        sizes: Mapping[str, int],
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
        of: str = PARTITIONS,
    ) -> None:
        """`sizes`: the bytes to be gone through, by label; one without bytes is done from the start.

        :param of: what the labels stand for: PARTITIONS are told one by one, with their names; FILES are not.
        """
        self._what, self._say, self._now, self._of = what, say, now, of
        self._sizes = dict(sizes)
        self._left = {label: size for label, size in sizes.items() if size > 0}
        self._begun = self._said = now()
        self._lock = threading.Lock()

    def add(self, label: str, size: int) -> None:
        """So many bytes of `label` are done; a task that ran twice does not make it more than all of it."""
        with self._lock:
            if label not in self._left:
                return
            self._left[label] -= size
            is_done = self._left[label] <= 0
            if is_done:
                del self._left[label]
            is_news = not self._left if self._of == FILES else is_done
            if is_news or self._now() - self._said >= EVERY_S:
                self._tell("" if self._of == FILES else f" {label} done;" if is_done else f" {label};")

    def _tell(self, label: str) -> None:
        self._said = self._now()
        total = sum(self._sizes.values())
        done = total - sum(self._left.values())
        finished = len(self._sizes) - len(self._left)
        text = f"{self._what}:{label} {finished:,} of {len(self._sizes):,} {self._of},"
        text += f" {done / MEGABYTE:,.1f} of {total / MEGABYTE:,.1f} MB ({100 * done // max(total, 1)} %)"
        pace = done / max(self._said - self._begun, 1e-3)
        text += f", {pace / MEGABYTE:,.1f} MB/s"
        if self._left and done:
            text += f", about {(total - done) / pace:,.0f} s left"
        self._say(text)


def over_tasks(context: Any, progress: Progress) -> Callable[[str, int], None]:
    """Return what tasks call with a partition and bytes; it is heard when a task has ended (Spark's accumulators)."""
    from pyspark.accumulators import AccumulatorParam

    class Gathered(AccumulatorParam[list[tuple[str, int]]]):  # type: ignore[misc]  # mypy is not shown pyspark
        """Gathers inside a task; on the driver `heard` is told, and nothing is kept."""

        def __init__(self, heard: Callable[[str, int], None] | None = None) -> None:
            self._heard = heard

        def __reduce__(self) -> tuple[Any, ...]:
            return Gathered, ()

        def zero(self, value: list[tuple[str, int]]) -> list[tuple[str, int]]:
            return []

        def addInPlace(self, value1: list[tuple[str, int]], value2: list[tuple[str, int]]) -> list[tuple[str, int]]:
            if self._heard is None:
                return value1 + value2
            for label, size in value2:
                self._heard(label, size)
            return []

    gathered = context.accumulator([], Gathered(progress.add))

    def tell(label: str, size: int) -> None:
        gathered.add([(label, size)])

    return tell
