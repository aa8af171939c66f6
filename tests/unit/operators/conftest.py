"""Airflow's settings for these tests, and a cluster of one broker, which knows every topic at once."""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.memory_cluster import MemoryCluster
    from tests.support.mock_kafka import MockKafka

# No worker process ends here, so no trigger has to wait for its heartbeat.
os.environ.setdefault("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0")
# Every wait is to be seen in the triggerer, also one that is over at the second look.
os.environ.setdefault("AIRFLOW__LOGYARD__DEFER_AFTER_S", "0")


@pytest.fixture(autouse=True)
def _no_second_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there is asked for once, and not for three seconds."""
    monkeypatch.setattr("logyard.operators.hooks.records.HEARD_S", 0.0)


# What these need is imported in them: where Airflow is missing the tests are skipped.


@pytest.fixture(scope="module")
def shared() -> Iterator["MockKafka"]:
    """librdkafka's cluster in memory, one for all tests of a module."""
    from tests.support.mock_kafka import MockKafka

    with MockKafka() as made:
        yield made


@pytest.fixture
def admin(shared: "MockKafka", monkeypatch: pytest.MonkeyPatch) -> "MemoryCluster":
    """What the admin client asks: the same cluster, by its id."""
    from tests.support.airflow_tasks import use
    from tests.support.memory_cluster import MemoryCluster

    made = MemoryCluster({1: None}, cluster_id=shared.cluster_id)
    use(monkeypatch, made)
    return made


@pytest.fixture
def kafka(shared: "MockKafka", admin: "MemoryCluster", monkeypatch: pytest.MonkeyPatch) -> "MockKafka":
    """The cluster that the connection `logyard_default` leads to."""
    from tests.support.airflow_tasks import CONNECTION

    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({**CONNECTION, "host": shared.bootstrap}))
    return shared
