"""What Spark says of an executor's Python, as one line."""

import sys

import pytest

from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.executors import NEEDS, STORES, check_here, no_python

FRAMES = "\n\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:241)\n"


NO_FILE = 'Cannot run program "/opt/python": error=2, No such file or directory'
OTHER = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot "
    "run with different minor versions"
)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (f"Lost task 0.3 in stage 0.0: java.io.IOException: {NO_FILE}{FRAMES}", NO_FILE),
        (f"pyspark.errors.exceptions.base.PySparkRuntimeError: {OTHER}.{FRAMES}", OTHER),
        (f"Job 0 cancelled because SparkContext was shut down{FRAMES}", None),
    ],
)
def test_a_python_that_cannot_be_used(said: str, found: str | None) -> None:
    assert no_python(said) == found


def test_libraries_are_looked_for_without_a_task_where_workers_have_this_python() -> None:
    check_here(NEEDS)
    with pytest.raises(JobFailed) as raised:
        check_here(("logyard", "not_there", "nor_this"))
    said = f"executors lack not_there, nor_this: install logyard[spark] in their Python ({sys.executable})"
    assert str(raised.value) == said
    with pytest.raises(JobFailed, match=r"install logyard\[spark,stores\]"):
        check_here(("not_there", STORES))
