"""`client_options`: their secrets are in no rendered field, whether they are a mapping or a text, and in no error."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG

from logyard.operators.airflow_names import AirflowFailException, redact
from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.producing import ProduceToTopicOperator
from logyard.operators.sensors.records import AwaitRecordSensor
from tests.support.airflow_tasks import context, run
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow

SECRETS = {"sasl.password": "pass-of-nobody", "ssl.key.pem": "-----BEGIN PRIVATE KEY-----\nMIIpem"}
OPTIONS = {**SECRETS, "fetch.wait.max.ms": 50}


def tasks(options: Any) -> list[Any]:
    fields = {"task_id": "t", "client_options": options}
    return [
        ConsumeFromTopicOperator(topics=["o"], group="o", **fields),
        ProduceToTopicOperator(topic="o", records=[], **fields),
        AwaitRecordSensor(topics=["o"], **fields),
    ]


def shown(task: Any) -> Any:
    """What Airflow's task runner keeps of the field."""
    return redact(task.client_options, "client_options")


@pytest.mark.parametrize("options", [OPTIONS, json.dumps(OPTIONS), "{{ params.options }}"])
def test_secrets_are_in_no_rendered_field(options: Any) -> None:
    for task in tasks(options):
        task.render_template_fields({**context(), "params": {"options": json.dumps(OPTIONS)}})
        assert shown(task) == {"fetch.wait.max.ms": 50, "sasl.password": "***", "ssl.key.pem": "***"}
        assert task.options() == OPTIONS


def test_a_text_that_is_no_mapping_is_in_no_field_and_no_error(kafka: MockKafka) -> None:
    kafka.write("o", [(None, "1")])
    broken = json.dumps(OPTIONS)[:-1]
    for task in tasks(broken):
        task.render_template_fields(told := context())
        assert shown(task) == "***"
        with pytest.raises(AirflowFailException, match="client_options: expected a JSON object") as failure:
            run(task, told)
        assert "pass-of-nobody" not in str(failure.value)


def test_a_task_of_a_mapped_one_hides_them_too() -> None:
    with DAG("mapped") as dag:
        mapped: Any = ConsumeFromTopicOperator.partial(task_id="t", topics=["o"], group="o").expand(
            client_options=[json.dumps(OPTIONS)]
        )
    told = {**context(), "dag": dag, "dag_run": SimpleNamespace(conf={})}
    told["ti"].map_index = 0
    mapped.render_template_fields(told)
    assert shown(told["task"])["sasl.password"] == "***"
