"""A job's driver inside a standalone cluster of Spark.

Spark refuses a Python program in cluster mode there. What its documentation has instead (*Spark Standalone Mode*, the
REST API's example): the driver's program is Spark's own class SparkSubmit, which runs spark-submit in client mode on
the worker that got the driver.

Rule 1: the worker sees none of this host's files. It finds the job in its own installation: at the path of this one, or
        in the folder that `[logyard] spark_jobs_on_workers` names.
Rule 2: what the job reads from files goes in a variable of the driver's process (`spark_jobs/carried_files.py`), never
        on a command line, which others see, and never to the worker's disk.
Rule 3: Spark hands the whole environment of spark-submit to that driver. So spark-submit gets only what it needs:
        Airflow's keys and addresses stay here.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import conf
from logyard.operators.hooks.cluster import CONFIG_SECTION

PROGRAM = "org.apache.spark.deploy.SparkSubmit"
# Spark starts no driver without a jar; this one is empty.
JAR = "driver.jar"
CARRIED = "LOGYARD_JOB_FILES"  # spark_jobs/carried_files.py reads it
# Linux starts no program with a longer variable than 128 KiB.
CARRIED_MAX = 100_000
REST_PORT = ":6066"
_KEPT = (
    "HADOOP_CONF_DIR",
    "HOME",
    "KRB5CCNAME",
    "LANG",
    "LC_ALL",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_PYTHON",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "USER",
)


@dataclass(frozen=True, slots=True)
class StandaloneDriver:
    """How one job is submitted: the jar as spark-submit's application, the arguments of PROGRAM, and the environment
    of spark-submit."""

    application: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def submission(master: str, job: Path, arguments: Sequence[str], files: Mapping[str, Path]) -> StandaloneDriver:
    """Return the submission of `job` with its arguments, in which files have names that say nothing there.

    :param files: what the job reads, by option.
    Raises BadSettings if the master's URL is that of its REST side, or if the files are too large for a variable.
    """
    if master.endswith(REST_PORT):
        raise BadSettings(f"{master} is the REST side of Spark's master: name its own port (7077) in the connection")
    folder = conf.get(CONFIG_SECTION, "spark_jobs_on_workers", fallback="") or str(job.parent)
    carried = json.dumps({option: path.read_text() for option, path in files.items()})
    if len(carried) > CARRIED_MAX:
        raise BadSettings(
            f"what the job reads from files ({', '.join(files)}) has {len(carried):,} characters, and a driver in a "
            f"standalone cluster takes {CARRIED_MAX:,}: run the driver here (deploy-mode client)"
        )
    words = ["--master", master, "--deploy-mode", "client", f"{folder}/{job.name}", *arguments]
    return StandaloneDriver(f"file://{folder}/{JAR}", tuple(words), _environment() | {CARRIED: carried})


def _environment() -> dict[str, str]:
    """Return what spark-submit needs here, and the Python of driver and executors there."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    kept.setdefault("PYSPARK_PYTHON", sys.executable)
    folders = [str(Path(sys.executable).parent)]
    # Not JAVA_HOME: it is another on the worker, and would go there.
    if java := os.environ.get("JAVA_HOME"):
        folders.append(f"{java}/bin")
    return kept | {"PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])}
