"""Maps the error of an append to the offsets log to the error that a member gets, as Kafka's GroupMetadataManager."""

from logyard.broker.errors import ErrorCode
from logyard.broker.replication.coordinator_errors import TOO_LARGE, coordinator_error


def answer_for(appended: ErrorCode) -> ErrorCode:
    """The answer to a commit, in a transaction too, whose verification may have failed.

    If the transaction's coordinator was not reached, COORDINATOR_LOAD_IN_PROGRESS makes the producer try again. Errors
    that have no answer of their own are passed on: REQUEST_TIMED_OUT, and those of the transaction.
    """
    if appended is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if appended in TOO_LARGE else coordinator_error(appended)


def answer_for_deletion(appended: ErrorCode) -> ErrorCode:
    """The same for tombstones, for which Kafka does not wait: after COORDINATOR_NOT_AVAILABLE a client tries again."""
    timed_out = appended is ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if timed_out else answer_for(appended)


def answer_for_group(stored: ErrorCode) -> ErrorCode:
    """The same for the append of a group's record. REBALANCE_IN_PROGRESS makes the members join again."""
    if stored is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_SERVER_ERROR if stored in TOO_LARGE else coordinator_error(stored)
