"""Which failures of a task no retry mends: those fail the task at once, also one that has `retries` left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import structlog
from airflow.sdk import BaseSensorOperator

from logyard.admin.acls.acls import BadAcl
from logyard.admin.cluster.elections import BadElection
from logyard.admin.configs.entities import BadConfig
from logyard.admin.errors import ApiError, ErrorCode, LogyardError, told
from logyard.admin.groups.groups import BadGroups
from logyard.admin.reassignment.json_files import BadReassignment
from logyard.admin.reassignment.plan import BadPlan
from logyard.admin.settings import BadSettings
from logyard.admin.topics.changes import TopicConflict
from logyard.admin.topics.document import CatalogRefused
from logyard.admin.transactions.transactions import BadTransactions
from logyard.admin.users.users import BadUser
from logyard.operators.airflow_names import AirflowFailException, AirflowSensorTimeout, AirflowSkipException
from logyard.operators.contents.schemas.problems import BadRecord

_LASTING = (
    BadSettings,
    BadAcl,
    BadConfig,
    BadElection,
    BadGroups,
    BadPlan,
    BadReassignment,
    BadRecord,
    BadTransactions,
    BadUser,
    TopicConflict,
    CatalogRefused,
)
_LASTING_CODES = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        ErrorCode.MESSAGE_TOO_LARGE,
    }
)
"""Not INVALID_REPLICATION_FACTOR: it may be that brokers are only away."""

Execute = TypeVar("Execute", bound=Callable[..., Any])


def lasts(problem: Exception) -> bool:
    """Whether the same request will be refused again: a wrong setting, a conflict with what exists, no right."""
    if isinstance(problem, ApiError):
        return problem.code in _LASTING_CODES
    return isinstance(problem, _LASTING)


class TaskRefused(AirflowFailException):
    """What the author of the DAG, or who started the run, has to change. The task's log has its text in one line.

    Airflow logs every exception with all frames down to where it was raised, which are ours and Airflow's. Nothing in
    its interface switches that off, so a processor of structlog takes them out: in this process, for this class only.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        processors = structlog.get_config()["processors"]
        # Loggers that exist share the list. Where it is none (another version of Airflow), the frames stay.
        if isinstance(processors, list) and _without_frames not in processors:
            processors.insert(0, _without_frames)


def _without_frames(_logger: Any, _method: str, event: Any) -> Any:
    """A processor of structlog: the text of a refusal instead of "Task failed with exception" and its frames."""
    given = event.get("exc_info")
    problem = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if not isinstance(problem, TaskRefused):
        return event
    return {**{name: value for name, value in event.items() if name != "exc_info"}, "event": str(problem)}


def failing_for_good(execute: Execute) -> Execute:
    """Let the function raise TaskRefused, an AirflowFailException, for what lasts; other errors pass."""

    @wraps(execute)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return execute(*args, **kwargs)
        except LogyardError as problem:
            if not lasts(problem):
                raise
            # The text says everything: the frames below it are ours, not the author's of the DAG.
            raise TaskRefused(told(problem)) from None

    return guarded  # type: ignore[return-value]  # `wraps` keeps the signature


@contextmanager
def skipped_if_asked(sensor: BaseSensorOperator) -> Iterator[None]:
    """`soft_fail` and `never_fail`, as Airflow's own loop heeds them, for a sensor that does not enter that loop."""
    try:
        yield
    except (AirflowFailException, AirflowSensorTimeout) as problem:
        if sensor.soft_fail or sensor.never_fail:
            raise AirflowSkipException(str(problem)) from problem
        raise
    except LogyardError as problem:
        if sensor.never_fail:
            raise AirflowSkipException(str(problem)) from problem
        raise
