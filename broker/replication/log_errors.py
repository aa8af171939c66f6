"""What becomes of a partition whose log raised something: an answer for it alone, and no other partition suffers."""

import structlog

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, StorageError
from logyard.broker.model import TopicPartition

log = structlog.get_logger("logyard.replication")


def code_of(error: Exception, tp: TopicPartition) -> ErrorCode:
    """Return what to answer for that partition; what nobody foresaw is said in the log, with its traceback."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, StorageError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    log.error("a partition cannot be worked on", partition=str(tp), exc_info=error)
    if isinstance(error, OSError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptData) else ErrorCode.UNKNOWN_SERVER_ERROR
