"""Errors of one partition's log become an answer for that partition alone; other partitions are not affected."""

import structlog

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, StorageError
from logyard.broker.model import TopicPartition

log = structlog.get_logger("logyard.replication")


def code_of(error: Exception, tp: TopicPartition) -> ErrorCode:
    """Return the error code for that partition; an unexpected error is logged with its traceback."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, StorageError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    log.error("a partition cannot be worked on", partition=str(tp), exc_info=error)
    if isinstance(error, OSError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptData) else ErrorCode.UNKNOWN_SERVER_ERROR
