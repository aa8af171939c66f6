"""The process of which Spark forks its Python workers, where all of Spark is on this machine (`session.start`).

Spark's own has nothing of a task's in it, so each worker imports the libraries and loads the compiled loops anew. This
one has both before the first fork, and its workers share them.

It is begun beside Spark's context (prepared_daemon.py), and prepares itself where that is not there.

Rule 1: what cannot be prepared is left to the tasks, which say what is wrong (executors.py).
Rule 2: nothing of it may be printed on standard output, where Spark reads the port.
"""

import contextlib
import gc
import os
import sys

from logyard.spark_jobs import prepared_daemon
from logyard.spark_jobs.executors import JOB


def prepare(job: str) -> None:
    """Import what a worker does, and load the loops of the job; another job has none."""
    # Whatever is wrong, tasks meet it too.
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(Exception):
        import pyspark.worker  # noqa: F401  # a worker's, imported before it is forked

        from logyard.spark_jobs import warm

        warm.load(job)
    gc.collect()
    # After each task a worker collects; what it was forked with is left out.
    gc.freeze()


def main() -> None:
    """Hand over to the process that is prepared; else prepare, then be Spark's own."""
    place = os.environ.get(prepared_daemon.PLACE)
    if place and prepared_daemon.hand_over(place):
        return
    from pyspark import daemon

    prepare(os.environ.get(JOB, ""))
    daemon.manager()


if __name__ == "__main__":
    main()
