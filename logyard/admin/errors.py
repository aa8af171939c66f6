"""The errors that the packages above the administration catch, and what to do about a refusal."""

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, LogyardError

__all__ = ["ApiError", "CorruptData", "ErrorCode", "LogyardError", "told"]

_RIGHTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "on the transactional id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "on the token",
}


def told(problem: Exception) -> str:
    """Return an error's text for a person: a missing right with who gives it."""
    where = _RIGHTS.get(problem.code) if isinstance(problem, ApiError) else None
    if where is None:
        return str(problem)
    return f"{problem}: this login lacks a right {where}; who may alter the cluster gives it: logyard acls add"
