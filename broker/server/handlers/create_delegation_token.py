"""CreateDelegationToken (38): a secret with which others may log in as the token's owner (KIP-48).

Any broker serves it. Rights: none for oneself; CreateTokens on the User for another owner (facts §18.5).
"""

from collections.abc import Sequence
from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.security.delegation_tokens import TOKEN_BYTES_MAX, too_long
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.token_requests import check_allowed, principal_of, split

USER = "User"


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    """An error answer names the owner that was asked for, if one was."""
    return {
        "error_code": int(code),
        "principal_type": message.owner_principal_type or "",
        "principal_name": message.owner_principal_name or "",
        "token_requester_principal_type": "",
        "token_requester_principal_name": "",
        "issue_timestamp_ms": -1,
        "expiry_timestamp_ms": -1,
        "max_timestamp_ms": -1,
        "token_id": "",
        "hmac": b"",
    }


async def handle(services: Services, request: Request, message: Any) -> Fields:
    requester = request.session.principal
    owner = requester
    if message.owner_principal_name:
        owner = principal_of(message.owner_principal_type, message.owner_principal_name)
    check_allowed(request.session)
    if owner != requester:
        authorization.require(services, request, RIGHTS[request.api_key].user, owner)
    # Whoever logs in with it is `User:` and the owner's name: an owner of another type would be asked about as somebody
    # else than the one that he becomes.
    if split(owner)[0] != USER:
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    _check_renewers(message.renewers)
    renewers = [principal_of(each.principal_type, each.principal_name) for each in message.renewers]
    token = await services.tokens.create(owner, requester, renewers, message.max_lifetime_ms)
    owner_type, owner_name = split(owner)
    requester_type, requester_name = split(requester)
    return {
        "error_code": 0,
        "principal_type": owner_type,
        "principal_name": owner_name,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester_name,
        "issue_timestamp_ms": token.issued_ms,
        "expiry_timestamp_ms": token.expires_ms,
        "max_timestamp_ms": token.max_ms,
        "token_id": token.token_id,
        "hmac": services.tokens.hmac_of(token.token_id),
    }


def _check_renewers(renewers: Sequence[Any]) -> None:
    """Raise ApiError: INVALID_PRINCIPAL_TYPE, or INVALID_REQUEST for more than fit into a token: before they are
    encoded, which takes seconds for a million, or for some thousands of long names."""
    room = TOKEN_BYTES_MAX
    for renewer in renewers:
        if renewer.principal_type != USER:
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        room -= len(renewer.principal_type) + len(renewer.principal_name)
        if room < 0:
            raise too_long()


HANDLER = Handler(message=handle, error=error)
