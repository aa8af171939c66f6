"""Links say what a task touched."""

from typing import cast

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import BaseOperator

from logyard.operators.links import NAMED_MAX, ClusterPageLink, page_address

pytestmark = pytest.mark.airflow


class Fields:
    """Fields of an operator."""

    def __init__(self, **fields: object) -> None:
        self.__dict__.update({"logyard_conn_id": "c"} | fields)


@pytest.mark.parametrize(
    ("fields", "query"),
    [
        ({}, ""),
        ({"topic": "t"}, "&topic=t"),
        ({"topics": '["t", "u"]'}, "&topic=t&topic=u"),
        ({"topics": ["t", "t"]}, "&topic=t"),
        ({"topics": "None", "group": ""}, ""),
        ({"topics": "[broken"}, ""),
        ({"plan": '{"partitions": [{"topic": "u", "partition": 1}, {"topic": "t"}, 3]}'}, "&topic=t&topic=u"),
        ({"plan": {"partitions": [{"topic": "u"}]}, "topics": []}, "&topic=u"),
        ({"plan": "null"}, ""),
        ({"drain": "[4, 5]", "topics": "[]"}, "&broker=4&broker=5"),
        ({"brokers": [4]}, "&broker=4"),
        ({"broker": 4}, "&broker=4"),
        ({"broker": "default"}, ""),
        ({"group": "a&b=<c>", "topic": "t"}, "&topic=t&group=a%26b%3D%3Cc%3E"),
    ],
)
def test_a_link(fields: dict[str, object], query: str) -> None:
    link = ClusterPageLink().get_link(cast(BaseOperator, Fields(**fields)), ti_key=None)
    assert link == f"/plugin/logyard?conn_id=c{query}"


def test_an_address_stays_one() -> None:
    assert page_address("c", [f"t{n}" for n in range(1000)]).count("topic=") == NAMED_MAX
