"""What readers of records hand to Airflow: only what it can keep."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.sensors.records import AwaitRecordSensor
from tests.support.airflow_tasks import CONNECTION, context, run, use
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def shared() -> Iterator[MockKafka]:
    with MockKafka() as made:
        yield made


@pytest.fixture
def admin(shared: MockKafka, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """What the admin client asks."""
    made = MemoryCluster({1: None}, cluster_id=shared.cluster_id)
    use(monkeypatch, made)
    return made


@pytest.fixture
def kafka(shared: MockKafka, admin: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> MockKafka:
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({**CONNECTION, "host": shared.bootstrap}))
    return shared


def answered(message: Any, what: str) -> Any:
    """What functions of sensors return, rightly and wrongly: named by its path."""
    endless: list[Any] = []
    endless.append(endless)
    answers = {"set": {1}, "nan": [float("nan")], "huge": {"n": 2**64}, "lone": "\ud800", "endless": endless}
    return {**answers, "tuple": (1, {2: "two"})}[what]


@pytest.mark.parametrize("deferrable", [False, True])
def test_what_an_event_cannot_hold_fails_the_sensor_with_one_line(kafka: MockKafka, deferrable: bool) -> None:
    """Airflow's triggerer would fail the task without a word of the function, or end with all of its triggers."""
    kafka.write("s6", [(None, "\0yes")])

    def found(what: str) -> dict[str, Any]:
        sensor = AwaitRecordSensor(
            task_id="s",
            topics=["s6"],
            group="s6",
            apply_function=f"{__name__}.answered",
            apply_function_kwargs={"what": what},
            deferrable=deferrable,
            commit_offset=False,
            poke_interval=0.1,
            timeout=20,
        )
        values: dict[str, Any] = run(sensor, context())[0]
        return values

    for what in ("set", "nan", "huge", "lone", "endless"):
        with pytest.raises(AirflowFailException, match=r"returned a .* for s6-0, offset 0, that JSON does not have"):
            found(what)
    assert found("tuple")["result"] == [1, {"2": "two"}]
    assert found("tuple")["record"]["value"] == "\N{REPLACEMENT CHARACTER}yes"
