"""What no retry mends ends a task in one line of its log."""

import io
import json
from collections.abc import Iterator

import pytest

pytest.importorskip("airflow.sdk")

import structlog
from airflow.sdk.log import logging_processors

from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.reassignment.plan import BadPlan
from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.failures import TaskRefused, failing_for_good

pytestmark = pytest.mark.airflow


@pytest.fixture
def written() -> Iterator[io.BytesIO]:
    """What a task's logger writes, with the processors with which Airflow's task runner writes JSON lines."""
    before, output = structlog.get_config(), io.BytesIO()
    structlog.configure(
        processors=list(logging_processors(json_output=True)),
        logger_factory=structlog.BytesLoggerFactory(output),
        cache_logger_on_first_use=True,
    )
    yield output
    structlog.configure(**before)


def logged(output: io.BytesIO, problem: Exception) -> dict[str, object]:
    """The last line, after the problem ended a task as Airflow's task runner sees it: its logger is older."""
    log = structlog.get_logger("task")
    log.info("the task begins")

    @failing_for_good
    def execute() -> None:
        raise problem

    try:
        execute()
    except Exception:
        log.exception("Task failed with exception")
    found: dict[str, object] = json.loads(output.getvalue().splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (BadSettings("partitions: expected an integer"), "partitions: expected an integer"),
        (BadPlan("not a plan: a JSON object is expected"), "not a plan: a JSON object is expected"),
        (ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic t exists"), "topic t exists"),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right"), "no right: this login lacks a right on the topic"),
    ],
)
def test_what_the_user_did_is_one_line(written: io.BytesIO, problem: Exception, text: str) -> None:
    line = logged(written, problem)
    assert text in str(line["event"])
    assert line["level"] == "error"
    assert "exception" not in line
    assert "exc_info" not in line
    assert "frames" not in json.dumps(line)


def test_all_other_errors_keep_their_frames(written: io.BytesIO) -> None:
    logged(written, BadSettings("first"))
    for problem in (LogyardError("the cluster is away"), AirflowFailException("of another"), ValueError("a defect")):
        line = logged(written, problem)
        assert line["event"] == "Task failed with exception"
        assert "frames" in json.dumps(line["exception"])


def test_a_refusal_is_airflows_own_failure_without_retry(written: io.BytesIO) -> None:
    assert issubclass(TaskRefused, AirflowFailException)
    for _ in range(3):
        TaskRefused("again")
    names = [getattr(one, "__name__", "") for one in structlog.get_config()["processors"]]
    assert names.count("_without_frames") == 1
