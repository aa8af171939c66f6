"""Shows the demo's progress: a bar on a terminal, lines elsewhere (in a CI log)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 5.0


class Display:
    """Shows the running step: `note` shows what it waits for, `advance` how much of it is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: tuple[Progress, TaskID] | None = None
        self._said = ""
        self._said_at = 0.0

    @contextmanager
    def step(self, number: int, total: int, title: str) -> Iterator[None]:
        """Show a step while the block runs, then a line with its seconds, unless it has failed."""
        head = f"[{number}/{total}] {title}"
        started = time.monotonic()
        if self._console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
            )
            with Progress(*columns, console=self._console, transient=True) as progress:
                self._bar = progress, progress.add_task(head, total=None)
                self._head = head
                try:
                    yield
                finally:
                    self._bar = None
        else:
            self._line(head)
            yield
        self._line(f"{head}: done in {time.monotonic() - started:.1f} s")

    def note(self, text: str) -> None:
        """Show what the step waits for; the same text is not shown twice in a row."""
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, description=f"{self._head}: {text}")
        elif text != self._said:
            self._line(f"      {text}")
        self._said = text

    def advance(self, done: int, total: int) -> None:
        """Show `done` of `total`; a line appears at most every few seconds."""
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=done, total=total)
        elif time.monotonic() - self._said_at >= LINE_EVERY_S or done == total:
            self._line(f"      {done:,} of {total:,}")

    def _line(self, text: str) -> None:
        self._said_at = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
