"""The errors that the packages above the administration catch."""

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, LogyardError

__all__ = ["ApiError", "CorruptData", "ErrorCode", "LogyardError"]
