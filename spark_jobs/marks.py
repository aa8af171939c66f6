"""Lines for whoever follows an export: files done of how many, MB/s, how long the rest may take.

A task leaves an empty file (a mark) when a file is done; the driver counts the marks. That tells more than Spark does,
which hears of a task when all of its files are done.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping

from logyard.spark_jobs.outcome import say

INTERVAL_S = 5.0
MEGABYTE = 1_000_000


def line(what: str, done: int, of: int, done_bytes: int, all_bytes: int, seconds: float) -> str:
    """Return one line; the estimate is what the bytes left take at the pace so far."""
    text = f"{what}: {done:,} of {of:,} files, {done_bytes / MEGABYTE:,.1f} of {all_bytes / MEGABYTE:,.1f} MB"
    if not done_bytes or seconds <= 0:
        return text
    pace = done_bytes / seconds
    text += f", {pace / MEGABYTE:,.1f} MB/s"
    return text if done == of else f"{text}, about {(all_bytes - done_bytes) / pace:,.0f} s left"


class MarkProgress:
    """Says every few seconds how many of the expected marks are there.

    :param directory: where tasks leave marks.
    :param sizes: by the mark's name, how many bytes it stands for.
    """

    def __init__(
        self,
        what: str,
        directory: str,
        sizes: Mapping[str, int],
        tell: Callable[[str], None] = say,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._what, self._directory, self._sizes = what, directory, sizes
        self._tell, self._interval_s = tell, interval_s
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> "MarkProgress":
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()
        if failure[0] is None and self._sizes:
            self._tell(self.look())

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._tell(self.look())

    def look(self) -> str:
        """Return the line of this moment."""
        there = os.listdir(self._directory) if os.path.isdir(self._directory) else []
        done = [self._sizes[name] for name in there if name in self._sizes]
        seconds = time.monotonic() - self._began
        return line(self._what, len(done), len(self._sizes), sum(done), sum(self._sizes.values()), seconds)


def mark(directory: str, name: str) -> None:
    """Say that something is done."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb"):
        pass
