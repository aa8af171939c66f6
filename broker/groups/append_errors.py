"""Maps the error of an append to the offsets log to the error that a member gets, as Kafka's GroupMetadataManager."""

from logyard.broker.errors import ErrorCode
from logyard.broker.replication.coordinator_errors import coordinator_error

_KNOWN = (
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
)


def _passed_on(appended: ErrorCode) -> ErrorCode:
    too_large = appended is ErrorCode.MESSAGE_TOO_LARGE
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if too_large else coordinator_error(appended)


def answer_for(appended: ErrorCode) -> ErrorCode:
    """The answer to a commit: an error that has no answer of its own is UNKNOWN_SERVER_ERROR."""
    answer = _passed_on(appended)
    return answer if answer in _KNOWN else ErrorCode.UNKNOWN_SERVER_ERROR


def answer_in_transaction(refused: ErrorCode) -> ErrorCode:
    """The same for a commit in a transaction, whose verification may fail too: errors of the transaction are passed on.

    If the coordinator was not reached, COORDINATOR_LOAD_IN_PROGRESS makes the producer try again.
    """
    if refused is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _passed_on(refused)


def answer_for_group(stored: ErrorCode) -> ErrorCode:
    """The same for the append of a group's record. REBALANCE_IN_PROGRESS makes the members join again."""
    if stored is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_SERVER_ERROR if stored is ErrorCode.MESSAGE_TOO_LARGE else answer_for(stored)
