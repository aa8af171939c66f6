"""The errors of the administration, as the floors above see them (the broker's own tree is below theirs)."""

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, LogyardError

__all__ = ["ApiError", "CorruptData", "ErrorCode", "LogyardError"]
