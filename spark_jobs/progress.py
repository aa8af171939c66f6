"""Progress lines in a job's log: for partitions one as each is done and every few seconds between, for files every few
seconds and at the end.

Driver and tasks may share no disk, so a task's progress is known when the task ends.
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
        """:param sizes: the bytes to read, by label; a label without bytes counts as done from the start.
        :param of: what the labels stand for: PARTITIONS are reported one by one with their names, FILES are not.
        """
        self._what, self._say, self._now, self._of = what, say, now, of
        self._sizes = dict(sizes)
        self._left = {label: size for label, size in sizes.items() if size > 0}
        # Kept as it goes: a job of very many partitions has a line for each.
        self._total = self._bytes_left = sum(self._left.values())
        self._begun = self._said = now()
        self._lock = threading.Lock()

    def add(self, label: str, size: int) -> None:
        """Count `size` bytes of `label` as done; a task that ran twice does not count beyond the label's size."""
        with self._lock:
            if label not in self._left:
                return
            self._bytes_left -= min(size, self._left[label])
            self._left[label] -= size
            is_done = self._left[label] <= 0
            if is_done:
                del self._left[label]
            is_news = not self._left if self._of == FILES else is_done
            if is_news or self._now() - self._said >= EVERY_S:
                self._tell("" if self._of == FILES else f" {label} done;" if is_done else f" {label};")

    def _tell(self, label: str) -> None:
        self._said = self._now()
        total, done = self._total, self._total - self._bytes_left
        finished = len(self._sizes) - len(self._left)
        text = f"{self._what}:{label} {finished:,} of {len(self._sizes):,} {self._of},"
        text += f" {done / MEGABYTE:,.1f} of {total / MEGABYTE:,.1f} MB ({100 * done // max(total, 1)} %)"
        pace = done / max(self._said - self._begun, 1e-3)
        text += f", {pace / MEGABYTE:,.1f} MB/s"
        if self._left and done:
            text += f", about {(total - done) / pace:,.0f} s left"
        self._say(text)


def over_tasks(context: Any, progress: Progress) -> Callable[[str, int], None]:
    """Return a function that tasks call with a label and bytes; the driver gets the calls of a task when the task ends
    (by Spark's accumulators)."""
    from pyspark.accumulators import AccumulatorParam

    class Gathered(AccumulatorParam[list[tuple[str, int]]]):  # type: ignore[misc]  # mypy is not shown pyspark
        """Collects calls inside a task; on the driver it passes them to `heard` and keeps nothing."""

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
