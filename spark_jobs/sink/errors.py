"""Why a write stops."""

from logyard.broker.errors import LogyardError


class CannotWrite(LogyardError):
    """Rows cannot be written; the text says why, and what to do, in one line."""


class Fenced(CannotWrite):
    """A later attempt of the same work partition has begun, or the transaction ran out of time: this one is over."""
