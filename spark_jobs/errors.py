"""Errors that more than one job raises."""

from logyard.broker.errors import LogyardError


class JobFailed(LogyardError):
    """A job cannot be done; the text says why in one line."""
