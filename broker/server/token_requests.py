"""What the four APIs of delegation tokens have in common (facts §18.1)."""

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.request import Session

ANONYMOUS = "User:ANONYMOUS"


def check_allowed(session: Session) -> None:
    """Raise ApiError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) for PLAINTEXT, anonymous SSL and log-ins with a token."""
    has_sasl = session.renew is not None
    if session.is_token_login or (not has_sasl and session.principal == ANONYMOUS):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def principal_of(kind: str | None, name: str) -> str:
    """Return `Type:name`."""
    return f"{kind or ''}:{name}"


def split(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
