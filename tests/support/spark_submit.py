"""Operators of Spark's jobs without Spark: where they would run, and what stands for spark-submit.

spark_at(monkeypatch, "spark://master:7077", "cluster")         # the connection spark_default
stand_in = submit(monkeypatch, '{"rows": 1}')                    # in place of the provider's operator
words, variables = spark_submit_called_by(monkeypatch, operator)  # what the real provider starts
"""

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from logyard.operators.airflow_names import AirflowException
from tests.support.airflow_tasks import context


def spark_at(monkeypatch: pytest.MonkeyPatch, master: str, deploy_mode: str = "client") -> None:
    found = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": deploy_mode}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(found))


class Submit:
    """Stands where spark-submit is called: writes a summary where the command line says, and may fail."""

    def __init__(self, content: str | None, fails: bool = False) -> None:
        self.content, self.fails = content, fails
        self.operator: Any = None

    def __call__(self, operator: Any, ctx: Any) -> None:
        self.operator = operator
        arguments = operator.application_args
        if self.content is not None:
            Path(arguments[arguments.index("--output") + 1]).write_text(self.content)
        if self.fails:
            raise AirflowException("spark-submit ended with 1")


def submit(monkeypatch: pytest.MonkeyPatch, content: str | None, fails: bool = False) -> Submit:
    stand_in = Submit(content, fails)
    monkeypatch.setattr(SparkSubmitOperator, "execute", lambda operator, ctx: stand_in(operator, ctx))
    return stand_in


def spark_submit_called_by(monkeypatch: pytest.MonkeyPatch, operator: Any) -> tuple[list[str], Any]:
    """Run an operator up to where the provider starts spark-submit; returns its words and its environment."""

    class Called(Exception):
        pass

    called: list[tuple[list[str], Any]] = []

    def popen(words: list[str], **settings: Any) -> None:
        called.append((words, settings.get("env")))
        raise Called

    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen", popen)
    monkeypatch.setattr("logyard.operators.standalone_status.need", lambda endpoint: None)
    with pytest.raises(Called):
        operator.execute(context())
    (found,) = called
    return found
