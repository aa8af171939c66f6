"""Errors that more than one job raises."""

from logyard.broker.errors import LogyardError


class JobFailed(LogyardError):
    """A job cannot be done; the text says why in one line."""


class SparkGone(JobFailed):
    """Spark did not start, or has ended: no topic can be worked on any more."""
