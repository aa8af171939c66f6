"""A job's command line: parse, run, print the summary as the last line (or one line on failure), return a status."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.spark_jobs import carried_files
from logyard.spark_jobs.atomic_file import write_atomically

FAILED = 1


def run_job(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    job: Callable[[argparse.Namespace], tuple[int, dict[str, Any]]],
) -> int:
    """Parse the arguments, run the job, print its summary; returns the exit status. Logyard's own errors, also those
    that Spark brings back from a task, become one line on stderr."""
    arguments = parser.parse_args(carried_files.opened(sys.argv[1:] if argv is None else argv))
    try:
        status, summary = job(arguments)
    except Exception as error:
        line = line_of(error)
        if line is None:
            raise
        return _fail(parser.prog, line)
    text = json.dumps(summary, sort_keys=True)
    if arguments.output:
        write_atomically(arguments.output, text + "\n")
    print(text, flush=True)
    return status


def positive(text: str) -> int:
    """Parse an option's whole number above 0."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: a whole number above 0 is expected")
    return int(text)


def natural(text: str) -> int:
    """Parse an option's whole number, 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number is expected")
    return int(text)


def say(text: str) -> None:
    """Print a line of progress on stderr, in one piece: threads speak side by side."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def line_of(error: Exception) -> str | None:
    """Return what an error of ours says, also if Spark brings it back from a task; None for another error."""
    return str(error) if isinstance(error, (LogyardError, OSError)) else _from_task(error)


def _fail(job: str, text: str) -> int:
    print(f"{job}: {' '.join(text.split())}", file=sys.stderr, flush=True)
    return FAILED


def _from_task(error: Exception) -> str | None:
    """Return the text of a LogyardError that a Python task raised, from the traceback in Spark's error; None if there
    is none."""
    for line in reversed(str(error).splitlines()):
        head, _, text = line.strip().partition(": ")
        if head.startswith("logyard.") and text:
            return text
    return None
