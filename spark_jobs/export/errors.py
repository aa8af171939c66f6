"""Why an export refuses to go on."""

from logyard.broker.errors import LogyardError


class ExportRefused(LogyardError):
    """An export would lose or double rows, or mix two logs; the text says what happened and which option goes on."""
