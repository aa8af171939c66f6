"""Airflow's settings for these tests, and a cluster of one broker, which knows every topic at once."""

import os

import pytest

# No worker process ends here, so no trigger has to wait for its heartbeat.
os.environ.setdefault("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0")
# Every wait is to be seen in the triggerer, also one that is over at the second look.
os.environ.setdefault("AIRFLOW__LOGYARD__DEFER_AFTER_S", "0")


@pytest.fixture(autouse=True)
def _no_second_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there is asked for once, and not for three seconds."""
    monkeypatch.setattr("logyard.operators.hooks.records.HEARD_S", 0.0)
