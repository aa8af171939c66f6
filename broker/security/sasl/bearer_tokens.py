"""What validates the tokens of OAUTHBEARER: the port, and what it returns."""

from dataclasses import dataclass
from typing import Protocol

from logyard.broker.errors import LogyardError


@dataclass(frozen=True, slots=True)
class BearerToken:
    """What a valid token says: its principal, and when it expires (wall clock)."""

    principal: str
    expires_ms: int


class TokenRefused(LogyardError):
    """A token is not valid. The text is for the log; `status` and `scope` are told to the client (RFC 7628)."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class TokenValidator(Protocol):
    """Validates tokens; called in a thread."""

    def validate(self, token: str) -> BearerToken:
        """Return what a token says. Raises TokenRefused."""
        ...
