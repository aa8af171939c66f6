"""Maps the error of an append to the offsets log to the error that a member gets, as Kafka's GroupMetadataManager."""

from logyard.broker.errors import ErrorCode

_ANSWERS = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def answer_for(appended: ErrorCode) -> ErrorCode:
    return _ANSWERS.get(appended, ErrorCode.UNKNOWN_SERVER_ERROR)


def answer_in_transaction(refused: ErrorCode) -> ErrorCode:
    """The same for a commit in a transaction, whose verification may fail too: errors of the transaction are passed on.

    If the coordinator was not reached, COORDINATOR_LOAD_IN_PROGRESS makes the producer try again.
    """
    if refused is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _ANSWERS.get(refused, refused)


def answer_for_group(stored: ErrorCode) -> ErrorCode:
    """The same for the append of a group's record. REBALANCE_IN_PROGRESS makes the members join again."""
    if stored is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_SERVER_ERROR if stored is ErrorCode.MESSAGE_TOO_LARGE else answer_for(stored)
