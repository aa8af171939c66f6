"""The record that the form of `send_record` means, rendered as Airflow does before the task runs."""

import json
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.dags.factories.send_record import send_record_dag
from logyard.operators.producing import ProduceToTopicOperator
from tests.support.airflow_tasks import context

pytestmark = pytest.mark.airflow

EMPTY: dict[str, Any] = {"key": None, "value": "", "headers": {}, "partition": None}


@pytest.mark.parametrize(
    ("form", "record"),
    [
        ({}, EMPTY),
        # Airflow's form gives null for a field whose text was deleted: that is no wish for a null value.
        ({"value": None}, EMPTY),
        ({"value": "v", "key": None, "headers": None}, EMPTY | {"value": "v"}),
        ({"key": "", "value": "v"}, EMPTY | {"value": "v"}),
        (
            {"key": "k", "value": "it's {{ 1 }} <ä>", "partition": 0},
            EMPTY | {"key": "k", "value": "it's {{ 1 }} <ä>", "partition": 0},
        ),
        ({"key": "k", "value": "v", "tombstone": True}, EMPTY | {"key": "k", "value": None}),
    ],
)
def test_a_form_is_one_record(form: dict[str, Any], record: dict[str, Any]) -> None:
    dag = send_record_dag()
    params = {
        name: dag.params.get_param(name).resolve(({"topic": "t"} | form)[name])
        if name in {"topic"} | form.keys()
        else dag.params[name]
        for name in dag.params
    }
    (task,) = dag.tasks
    task.render_template_fields(context() | {"params": params})
    assert isinstance(task, ProduceToTopicOperator)
    assert isinstance(task.records, str)
    assert json.loads(task.records) == [record]
