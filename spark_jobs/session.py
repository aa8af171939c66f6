"""The only module that starts Spark, and cuts work into tasks."""

import heapq
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from logyard.broker.compiled.kernel_place import CHOSEN, PRIVATE
from logyard.spark_jobs import executors, prepared_daemon
from logyard.spark_jobs.command import line_of, say
from logyard.spark_jobs.errors import JobFailed, SparkGone
from logyard.spark_jobs.executors import NEEDS
from logyard.spark_jobs.progress import FILES, Progress, over_tasks

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# Tasks per core, so that one large segment does not delay the whole job.
WAVES = 4
# How much a task reads at most if items are smaller: progress is reported, and failed work repeated, per task.
TASK_BYTES = 256 * 1024 * 1024
# The settings that are variables of the workers.
VARIABLE = "spark.executorEnv."


def need_rdds(job: str) -> None:
    """Raise JobFailed if the job was told to use Spark Connect (`spark-submit --remote` sets the variable, too)."""
    if os.environ.get("SPARK_REMOTE"):
        raise JobFailed(f"{job} needs Spark's RDDs, which Spark Connect does not have: give --master, and no --remote")


def start(app: str, settings: Mapping[str, str] | None = None, needs: Sequence[str] = NEEDS) -> Any:
    """Return Spark's context, with the submitted settings and `settings`; raises JobFailed if executors have no such
    Python as the driver's, or lack a library of `needs`.

    It is not a session: starting Spark's SQL takes two seconds, and tasks read and write by themselves.
    """
    began = time.monotonic()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext

    # A conf knows what was submitted only when the JVM is there.
    SparkContext._ensure_initialized()
    conf = SparkConf().setAppName(app)
    conf.set("spark.sql.session.timeZone", "UTC").set("spark.ui.showConsoleProgress", "false")
    for name, value in _variables().items():
        conf.set(f"{VARIABLE}{name}", value)
    for key, value in (settings or {}).items():
        conf.set(key, value)
    is_here = works_here(conf)
    if is_here:
        executors.check_here(needs)
        conf.setIfMissing("spark.python.daemon.module", executors.DAEMON)
        conf.set(f"{VARIABLE}{executors.JOB}", _job_of(app))
        is_ours = conf.get("spark.python.daemon.module") == executors.DAEMON
        is_first = SparkContext._active_spark_context is None
        if is_ours and is_first and (place := prepared_daemon.take(_variables_in(conf.getAll()))):
            conf.set(f"{VARIABLE}{prepared_daemon.PLACE}", place)
    prepared_daemon.forget()
    context = SparkContext.getOrCreate(conf)
    if not is_here:
        executors.check(context, needs)
    say(f"{app}: Spark is up after {time.monotonic() - began:.1f} s")
    return context


def ahead(job: str) -> None:
    """Begin the workers' daemon before anything of Spark is imported, where spark-submit's command line says that they
    are forked here; `start` asks Spark, and ends it if that is not so."""
    settings = prepared_daemon.submitted()
    if not settings:
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if works_here(settings) and settings.get("spark.python.daemon.module", executors.DAEMON) == executors.DAEMON:
        prepared_daemon.begin_early(_variables_in(settings.items()) | _variables() | {executors.JOB: job})


def _variables() -> dict[str, str]:
    """The variables that all workers get. Where no place is chosen for compiled loops each executor chooses: numba
    cannot cache beside a source in a zip, and would compile again in each run."""
    kernels = os.environ.get(CHOSEN)
    return ({CHOSEN: kernels} if kernels else {}) | {PRIVATE: "1"}


def _variables_in(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The variables of the workers among Spark's settings."""
    return {key.removeprefix(VARIABLE): value for key, value in settings if key.startswith(VARIABLE)}


def _job_of(app: str) -> str:
    return app.rpartition(" ")[2]


def works_here(conf: Any) -> bool:
    """Whether the workers are forked on this machine, by this Python, and find our modules without Spark's help (which
    comes after the daemon has started: those of a zip are not there yet)."""
    python = conf.get("spark.pyspark.python") or os.environ["PYSPARK_PYTHON"]
    master = conf.get("spark.master") or ""
    return master.partition("[")[0] == "local" and python == sys.executable and os.path.isfile(__file__)


def sql_session(context: Any) -> Any:
    """Return the SQL session of a context, for the few things that need Spark's SQL."""
    from pyspark.sql import SparkSession

    return SparkSession(context)


def run_each(context: Any, items: Sequence[Item], function: Callable[[Item], Answer]) -> list[Answer]:
    """Run `function` on every item, a task each; returns the answers in the items' order."""
    if not items:
        return []
    return list(context.parallelize(list(items), len(items)).map(function).collect())


def bins_by_size(items: Sequence[Item], size: Callable[[Item], int], count: int) -> list[list[Item]]:
    """Spread items over at most `count` bins of about equal size, largest items first; empty bins are left out."""
    bins: list[list[Item]] = [[] for _ in range(max(count, 1))]
    loads = [(0, number) for number in range(len(bins))]
    for item in sorted(items, key=size, reverse=True):
        load, lightest = loads[0]
        bins[lightest].append(item)
        heapq.heapreplace(loads, (load + size(item) + 1, lightest))
    return [b for b in bins if b]


def task_count(context: Any) -> int:
    """Return the number of tasks for a job's work."""
    return int(context.defaultParallelism) * WAVES


class Workers(Protocol):
    """Runs a job's work: Spark, or this process in tests."""

    def each(
        self, what: str, items: Sequence[Item], size: Callable[[Item], int], function: Callable[[Item], Answer]
    ) -> list[Answer]:
        """Run `function` on every item, each a file of `size` bytes; returns the answers in any order. Progress is
        reported under the name `what`."""
        ...

    def context(self) -> Any:
        """Return Spark's context; starts Spark on first use."""
        ...

    def slots(self) -> int:
        """Return how many items run at once."""
        ...


class SparkStart:
    """Spark's context, started once, when the first topic has work for it; threads that need it wait."""

    def __init__(self, app: str, settings: Mapping[str, str] | None = None, needs: Sequence[str] = NEEDS) -> None:
        self._app, self._settings, self._needs = app, settings, needs
        self._lock = threading.Lock()
        self._started: Future[Any] | None = None

    def begin(self) -> None:
        """Begin to start Spark beside the caller, if nobody has."""
        with self._lock:
            if self._started is None:
                ahead(_job_of(self._app))
                pool = ThreadPoolExecutor(1, "spark-start")
                self._started = pool.submit(start, self._app, self._settings, self._needs)
                pool.shutdown(wait=False)

    def context(self) -> Any:
        """Return Spark's context; raises SparkGone if it did not start or has ended."""
        self.begin()
        assert self._started is not None, "begin"
        try:
            context = self._started.result()
        except Exception as error:
            line = line_of(error)
            raise SparkGone(line or f"Spark did not start: {error}") from error
        if _has_ended(context):
            raise SparkGone("Spark has ended before the job did: see its log above")
        return context


def _has_ended(context: Any) -> bool:
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # whatever the bridge to a dead JVM raises
        return True


class SparkWorkers:
    """Spark's executors; Spark is started only when there is work."""

    def __init__(self, app: str, settings: Mapping[str, str] | None = None, needs: Sequence[str] = NEEDS) -> None:
        self._spark = SparkStart(app, settings, needs)

    def context(self) -> Any:
        return self._spark.context()

    def slots(self) -> int:
        return int(self.context().defaultParallelism)

    def each(
        self, what: str, items: Sequence[Item], size: Callable[[Item], int], function: Callable[[Item], Answer]
    ) -> list[Answer]:
        if not items:
            return []
        context = self.context()
        numbered = list(enumerate(items))
        sizes = {str(number): size(item) for number, item in numbered}
        count = max(task_count(context), sum(sizes.values()) // TASK_BYTES)
        bins = bins_by_size(numbered, lambda one: size(one[1]), count)
        tell = over_tasks(context, Progress(what, sizes, say, of=FILES))

        def work(part: list[tuple[int, Item]]) -> list[Answer]:
            answers = []
            for number, item in part:
                answers.append(function(item))
                tell(str(number), size(item))
            return answers

        return [answer for answers in run_each(context, bins, work) for answer in answers]
