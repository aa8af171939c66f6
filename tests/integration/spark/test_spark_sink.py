"""`df.write` and `df.writeStream` of `format("logyard")` into our brokers: exactly once, whoever dies. The same cases
on Apache Kafka: tests/reference/test_spark_sink.py.
"""

from pathlib import Path

import pytest

from tests.support import sink_cases
from tests.support.real_cluster import RealCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_refusals(cluster: RealCluster) -> None:
    sink_cases.refusals(cluster)


def test_attempts_at_once(cluster: RealCluster) -> None:
    sink_cases.attempts_at_once(cluster)


@pytest.mark.timeout(200)
def test_a_lost_coordinator(own_cluster: RealCluster) -> None:
    sink_cases.lost_coordinator(own_cluster)


@pytest.mark.long
@pytest.mark.parametrize(("first", "last"), [(0, 3), (3, 6), (6, 10)])
def test_tasks_that_die(cluster: RealCluster, tmp_path: Path, first: int, last: int) -> None:
    sink_cases.dying_tasks(cluster, tmp_path, first, last)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_speculation(cluster: RealCluster, tmp_path: Path) -> None:
    sink_cases.speculation(cluster, tmp_path)


@pytest.mark.long
def test_two_drivers(cluster: RealCluster, tmp_path: Path) -> None:
    sink_cases.two_drivers(cluster, tmp_path)


@pytest.mark.long
def test_drivers_that_die(cluster: RealCluster, tmp_path: Path) -> None:
    sink_cases.dying_drivers(cluster, tmp_path)
