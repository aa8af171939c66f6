"""Which failures of a task no retry mends: those fail the task at once, also one that has `retries` left."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from logyard.admin.acls.acls import BadAcl
from logyard.admin.cluster.elections import BadElection
from logyard.admin.configs.entities import BadConfig
from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.groups.groups import BadGroups
from logyard.admin.reassignment.json_files import BadReassignment
from logyard.admin.settings import BadSettings
from logyard.admin.topics.changes import TopicConflict
from logyard.admin.topics.document import CatalogRefused
from logyard.admin.transactions.transactions import BadTransactions
from logyard.admin.users.users import BadUser
from logyard.operators.airflow_names import AirflowFailException

_LASTING = (
    BadSettings,
    BadAcl,
    BadConfig,
    BadElection,
    BadGroups,
    BadReassignment,
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


def failing_for_good(execute: Execute) -> Execute:
    """Let the function raise AirflowFailException for what lasts; other errors pass."""

    @wraps(execute)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return execute(*args, **kwargs)
        except LogyardError as problem:
            if not lasts(problem):
                raise
            # The text says everything: the frames below it are ours, not the author's of the DAG.
            raise AirflowFailException(str(problem)) from None

    return guarded  # type: ignore[return-value]  # `wraps` keeps the signature
