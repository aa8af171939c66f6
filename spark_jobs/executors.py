"""Whether executors can do our work: their Python, its version and its libraries. Asked before anything is read."""

import re
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from logyard.spark_jobs.errors import JobFailed

DAEMON, JOB = "logyard.spark_jobs.worker_daemon", "LOGYARD_JOB"
"""What forks the workers where all of Spark is on this machine, and the variable that tells it the job."""

NEEDS = ("logyard", "numpy", "numba", "pyarrow", "crc32c", "cramjam", "zstandard", "aiokafka")
# What an object store needs besides.
STORES = "obstore"
# What Spark says of a Python that does not start, and of one of another version than the driver's.
_NO_PYTHON = re.compile(r"Cannot run program [^\n]*|\[PYTHON_VERSION_MISMATCH\] [^\n]*")


def check(context: Any, needs: Sequence[str]) -> None:
    """Raise JobFailed naming what is wrong with an executor's Python, or the libraries that it lacks."""
    try:
        missing = context.parallelize([tuple(needs)], 1).map(_probe()).collect()[0]
    except Exception as error:
        if (reason := no_python(str(error))) is None:
            raise
        raise JobFailed(
            f"executors cannot run their Python: {reason}; it is {context.pythonExec}, and each of Spark's hosts needs "
            "the driver's version of Python there (spark.pyspark.python, PYSPARK_PYTHON)"
        ) from None
    _require(missing, needs, context.pythonExec)


def check_here(needs: Sequence[str]) -> None:
    """The same where this Python is that of the executors, on this machine: no task is needed to ask."""
    _require([name for name in needs if find_spec(name) is None], needs, sys.executable)


def _require(missing: Sequence[str], needs: Sequence[str], python: str) -> None:
    if missing:
        extras = "spark,stores" if STORES in needs else "spark"
        raise JobFailed(f"executors lack {', '.join(missing)}: install logyard[{extras}] in their Python ({python})")


def no_python(said: str) -> str | None:
    """Return what Spark's error says of a Python that cannot be used, None if it says nothing of it."""
    found = _NO_PYTHON.search(said)
    return found.group().strip().rstrip(".") if found else None


def _probe() -> Callable[[Sequence[str]], list[str]]:
    """Return a function that goes to executors by its code: one by name needs Logyard there, before it can say so."""

    def missing(needs: Sequence[str]) -> list[str]:
        from importlib import import_module

        lacking = []
        for name in needs:
            try:
                import_module(name)
            except ImportError:
                lacking.append(name)
        return lacking

    return missing
