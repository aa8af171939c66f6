"""The error of an export that refuses to continue."""

from logyard.broker.errors import LogyardError


class ExportRefused(LogyardError):
    """Continuing would lose or duplicate rows, or mix two logs; the text says what happened and which option allows
    it."""
