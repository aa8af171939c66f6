"""A job's command line: parse, run, print the summary as the last line (or one line on failure), return a status."""

import argparse
import atexit
import fcntl
import json
import os
import stat
import struct
import sys
import termios
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from logyard.broker.errors import LogyardError
from logyard.spark_jobs import carried_files
from logyard.spark_jobs.atomic_file import write_atomically

FAILED = 1
# How long a job that is done waits at most for the reader of its last lines.
READ_S = 2.0


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
        try:
            write_atomically(arguments.output, text + "\n")
        except OSError as error:
            # What was done is told all the same.
            status = status or FAILED
            _fail(parser.prog, f"the summary could not be written: {error}")
    print(text, flush=True)
    return status


def leave(status: int) -> NoReturn:
    """End the process at once: the job has given back what it held, and its summary is out. Python would take all of
    its modules down first, and wait for a Spark that a failed job has begun to start. What asked to be called at the
    end is called."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # spark-submit's JVM has a thread that reads what is said, and does not wait for it once this process has ended.
    until = time.monotonic() + READ_S
    while time.monotonic() < until and not (is_read(1) and is_read(2)):
        time.sleep(0.005)
    os._exit(status)


def is_read(descriptor: int) -> bool:
    """Whether nothing waits in a pipe for its reader; True for what is no pipe."""
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return True
        (waiting,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:  # it is closed
        return True
    return bool(waiting == 0)


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


def told(error: Exception) -> str:
    """Return a failure as one line; the traceback of what is no failure of ours goes to the log."""
    line = line_of(error)
    if line is None:
        traceback.print_exception(error, file=sys.stderr)
        line = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
    return " ".join(line.split())


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
