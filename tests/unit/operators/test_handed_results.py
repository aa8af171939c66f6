"""What readers of records hand to Airflow: results before the offsets are committed, and only what it can keep."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.sensors.records import AwaitRecordSensor
from tests.support.airflow_tasks import FakeTaskInstance, context, run
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow


class NoDatabase(FakeTaskInstance):
    """Airflow's database takes no result."""

    def xcom_push(self, key: str, value: Any) -> None:
        if key == "return_value":
            raise OSError("no database")
        super().xcom_push(key, value)


def test_nothing_is_committed_before_the_result_is_an_xcom(kafka: MockKafka) -> None:
    """What later tasks get would lack records that nobody reads again."""
    kafka.write("x1", [(None, str(n)) for n in range(3)])

    def reader(function: Any, **more: Any) -> ConsumeFromTopicOperator:
        fields: dict[str, Any] = {"task_id": "r", "topics": ["x1"], "group": "x1", "apply_function": function, **more}
        return ConsumeFromTopicOperator(return_apply_function_results=True, **fields)

    with pytest.raises(TypeError, match="not JSON serializable"):
        run(reader(lambda message: object()), context())
    assert kafka.committed("x1", "x1") < 0
    with pytest.raises(OSError, match="no database"):
        run(reader(lambda message: 1), {**context(), "ti": NoDatabase()})
    assert kafka.committed("x1", "x1") < 0
    told = context()
    found, _ = run(reader(lambda message: 1), told)
    assert (found["results"], found["committed"], kafka.committed("x1", "x1")) == ([1, 1, 1], True, 3)
    assert told["ti"].values["return_value"] | {"committed": True, "cluster_id": kafka.cluster_id} == found
    kafka.write("x1", [(None, "3")])
    told = context()
    reader(lambda message: 1, do_xcom_push=False).execute(told)
    assert told["ti"].values == {}
    assert kafka.committed("x1", "x1") == 4


class Watching(FakeTaskInstance):
    """What was committed when an XCom was pushed for the first time."""

    def __init__(self, committed: Callable[[], int]) -> None:
        super().__init__()
        self.committed = committed
        self.first: dict[str, tuple[Any, int]] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.first.setdefault(key, (value, self.committed()))
        super().xcom_push(key, value)


def test_the_outcome_is_an_xcom_before_anything_is_committed(kafka: MockKafka) -> None:
    """A worker that dies after the commit leaves to the page what the task has read."""
    kafka.write("x3", [(None, str(n)) for n in range(3)])
    watching = Watching(lambda: kafka.committed("x3", "x3"))
    run(ConsumeFromTopicOperator(task_id="r", topics=["x3"], group="x3"), {**context(), "ti": watching})
    outcome, committed = watching.first["outcome"]
    assert (outcome["sentence"], committed < 0) == ("Group x3: 3 records read, nothing committed", True)
    assert watching.values["outcome"]["sentence"] == "Group x3: 3 records read, and committed"
    assert kafka.committed("x3", "x3") == 3


def test_a_sensor_commits_nothing_before_the_record_is_an_xcom(kafka: MockKafka, admin: MemoryCluster) -> None:
    kafka.write("x2", [(None, "yes")])
    sensor = AwaitRecordSensor(task_id="s", topics=["x2"], group="x2", poke_interval=0.1, timeout=20)
    with pytest.raises(OSError, match="no database"):
        run(sensor, {**context(), "ti": NoDatabase()})
    assert "x2" not in admin.group_commits
    assert run(sensor, context())[0]["record"]["value"] == "yes"
    assert admin.group_commits["x2"][TopicPartition("x2", 0)] == 1


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


def test_results_of_commits_of_each_batch_are_warned_of(kafka: MockKafka, capsys: pytest.CaptureFixture[str]) -> None:
    """Airflow's own operator takes the two together."""
    kafka.write("x9", [(None, "1")])
    reader = ConsumeFromTopicOperator(
        task_id="r",
        topics=["x9"],
        group="x9",
        apply_function=lambda message: message.value().decode(),
        commit_cadence="end_of_batch",
        return_apply_function_results=True,
    )
    assert run(reader, context())[0]["results"] == ["1"]
    assert "if this try fails, the results of the batches that it has committed are lost" in capsys.readouterr().out
