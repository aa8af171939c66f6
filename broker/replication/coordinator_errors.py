"""The error that a coordinator's clients get for a failed append to its log (facts §16, §17.1)."""

from logyard.broker.errors import ErrorCode

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""A record that its log does not take: each coordinator has an answer of its own for it."""

_ANSWERS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def coordinator_error(appended: ErrorCode) -> ErrorCode:
    """Return COORDINATOR_NOT_AVAILABLE if trying again may help, NOT_COORDINATOR if another broker has to be asked, and
    other errors unchanged: what REQUEST_TIMED_OUT becomes depends on the coordinator."""
    return _ANSWERS.get(appended, appended)
