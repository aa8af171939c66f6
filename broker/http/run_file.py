"""The file with the runs that have tokens, so that a broker's restart does not end them: `http.runs`, mode 0600.

It is in the first log directory, and written whole, before the answer to whoever began, renewed or ended a run. A file
that cannot be read is left out: its runs have ended.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import structlog

from logyard.broker.event_loop import RunBlocking
from logyard.broker.http.run_tokens import RunTokens

NAME = "http.runs"

log = structlog.get_logger("logyard.http")


class RunFile:
    """Reads the runs at the start, and writes them after each change."""

    def __init__(self, log_dir: str, runs: RunTokens, run_blocking: RunBlocking) -> None:
        self._path = Path(log_dir) / NAME
        self._runs = runs
        self._run_blocking = run_blocking
        self._one_at_a_time = asyncio.Lock()

    def load(self) -> None:
        """Take over the runs of the time before the restart."""
        try:
            self._runs.take(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("runs forgotten: their tokens are void", file=str(self._path), error=type(error).__name__)

    async def save(self) -> None:
        """Write the runs as they are when it is this call's turn. Raises OSError."""
        async with self._one_at_a_time:
            rows = self._runs.rows()
            await self._run_blocking(lambda: _write(self._path, rows))


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    aside = path.with_suffix(".tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(rows, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # else a power failure brings the older file back
    finally:
        os.close(directory)
