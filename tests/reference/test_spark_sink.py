"""`df.write` and `df.writeStream` of `format("logyard")` into Apache Kafka: exactly once, whoever dies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import kafka, sink_cases
from tests.support.real_cluster import RealCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ALONE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with kafka.running(tmp_path_factory.mktemp("sink") / "cluster", "K", ALONE) as running:
        yield running


def test_refusals(alone: RealCluster) -> None:
    sink_cases.refusals(alone)


def test_attempts_at_once(alone: RealCluster) -> None:
    sink_cases.attempts_at_once(alone)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (3, 6), (6, 10)])
def test_tasks_that_die(alone: RealCluster, tmp_path: Path, first: int, last: int) -> None:
    sink_cases.dying_tasks(alone, tmp_path, first, last)


@pytest.mark.timeout(1200)
def test_speculation(alone: RealCluster, tmp_path: Path) -> None:
    sink_cases.speculation(alone, tmp_path)


def test_two_drivers(alone: RealCluster, tmp_path: Path) -> None:
    sink_cases.two_drivers(alone, tmp_path)


def test_drivers_that_die(alone: RealCluster, tmp_path: Path) -> None:
    sink_cases.dying_drivers(alone, tmp_path)
