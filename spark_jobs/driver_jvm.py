"""How a job's JVM is started where all of Spark is on this machine: it loads many classes and has little to do itself.

Rule 1: only the quick compiler is used. The optimizing one, and counting for it, took more than a quarter of the CPU of
        an application's start, from the Python processes that do the work; the JVM passes their bytes on.
Rule 2: the classes come from an archive beside the compiled loops, if `python -m logyard.spark_jobs.warm` has made it,
        by a job of one task (JEP 350, class data sharing). A JVM that is not of the kind that made it, or has other
        jars, leaves it alone.
Rule 3: what is in an archive is run by whoever starts Spark, so its directory has to be this user's own: the one that
        somebody chose for the loops, or the private one.
"""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from logyard.broker.compiled import kernel_place

SETTING = "spark.driver.defaultJavaOptions"
"""The setting of Spark that takes `options`; those that a user gives with `extraJavaOptions` come after them."""

# HotSpot's. OpenJ9 passes over options that it does not know.
_QUICK = "-XX:TieredStopAtLevel=1"

LAUNCHER = {"SPARK_LAUNCHER_OPTS": f"{_QUICK} -XX:+UseSerialGC -Xshare:auto"}
"""The variable for spark-submit's first JVM, which only puts the command line of the second together."""

MAKING_S = 300.0
_NAME = "spark-classes.jsa"
# A JVM says on its standard output, where a job's summary goes, that it leaves an archive alone.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def path() -> Path | None:
    """Return where the archive is, or would be; None where there is no directory that is this user's own."""
    place = kernel_place.chosen() or kernel_place.own()
    return Path(place) / _NAME if place else None


def options() -> str:
    """Return the options of a job's JVM, with those of the archive if there is one."""
    archive = path()
    if archive is None or not archive.is_file():
        return _QUICK
    return f"{_QUICK} {_quoted(f'-XX:SharedArchiveFile={archive}')} {_SILENT}"


def make() -> Path | None:
    """Make the archive anew, and return where it is; None if there is no place for it, or no JVM that can.

    A JVM that meets half an archive crashes, so it gets its name when all of it is on the disk.
    """
    archive = path()
    if archive is None:
        return None
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_name(f"{_NAME}.{os.getpid()}")
    try:
        if not _recorded(draft):
            return None
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(archive)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    return archive


def _recorded(draft: Path) -> bool:
    """Run Spark once, whose JVM writes the archive at its end; whether it has."""
    submit = Path(sys.executable).with_name("spark-submit")
    settings = {
        SETTING: f"{_quoted(f'-XX:ArchiveClassesAtExit={draft}')} {_SILENT}",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    command = [str(submit), "--master", "local[1]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = f"{submit.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    try:
        ended = subprocess.run(
            [*command, __file__], env=environment, capture_output=True, timeout=MAKING_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0 and draft.is_file()


def _quoted(option: str) -> str:
    """An option as Spark splits its settings into words: the path in it may have blanks."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return option if escaped == option and not re.search(r"[\s']", option) else f'"{escaped}"'


def main() -> None:
    """What is recorded: Spark's start, and what the jobs use of it: progress, a broadcast, a shuffle."""
    from logyard.spark_jobs import session
    from logyard.spark_jobs.command import say
    from logyard.spark_jobs.progress import Progress, over_tasks

    context = session.start("classes")
    known = context.broadcast({"a": 1})
    tell = over_tasks(context, Progress("classes", {"a": 1}, say))

    def work(number: int) -> tuple[str, int]:
        tell("a", 1)
        return "a", number + known.value["a"]

    assert session.run_each(context, [1, 2], work) == [("a", 2), ("a", 3)]
    groups = context.parallelize([1, 2], 2).map(work).groupByKey(2).mapValues(sorted).collect()
    assert groups == [("a", [2, 3])]
    context.stop()


if __name__ == "__main__":
    main()
