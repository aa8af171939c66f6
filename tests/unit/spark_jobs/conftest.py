"""One Spark session for everything that is marked `spark` here."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.zookeeper import QUICK_JAVA


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session on loopback; tasks run in this Python."""
    before = dict(os.environ)
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_JAVA}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    session = builder.getOrCreate()
    del os.environ["JDK_JAVA_OPTIONS"]
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)
