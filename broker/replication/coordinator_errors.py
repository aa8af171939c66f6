"""How a failed append to a coordinator's log looks to those whom it serves (facts §16, §17.1)."""

from logyard.broker.errors import ErrorCode

_ANSWERS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def coordinator_error(appended: ErrorCode) -> ErrorCode:
    """Return COORDINATOR_NOT_AVAILABLE where trying again may help, NOT_COORDINATOR where another broker is to be
    asked, and what has no such meaning as it is."""
    return _ANSWERS.get(appended, appended)
