"""The summary of a Spark job: what it left as a file, or printed."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logyard.admin.errors import LogyardError


class JobFailed(LogyardError):
    """A Spark job ended, but its summary reports an error, or there is no summary."""


def summary(output: Path, lines: Iterable[str]) -> dict[str, Any]:
    """The job's summary: its output file, else the last JSON object that it printed. Raises JobFailed."""
    candidates = [output.read_text()] if output.is_file() else []
    candidates += reversed(list(lines))
    for text in candidates:
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    raise JobFailed("the job succeeded but printed no JSON summary")


def elsewhere(job: str, lines: Iterable[str]) -> dict[str, Any]:
    """The summary of a job whose driver ran in the cluster: what it printed, if that came here, else its name."""
    try:
        return summary(Path(os.devnull), lines)
    except JobFailed:
        return {"job": job, "summary": "in the driver's log"}
