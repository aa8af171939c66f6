"""DescribeDelegationToken (41): the tokens that the principal owns, has asked for, or may renew (KIP-48).

Others are shown with Describe on the token or DescribeTokens on its owner, and left out without (facts §18.5).
"""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.token_requests import check_allowed, principal_of, split
from logyard.broker.znodes.delegation_tokens import TokenInfo

# What a token takes besides its renewers, in parts of an answer.
TOKEN_PARTS = 3


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "tokens": []}


async def handle(services: Services, request: Request, message: Any) -> Fields:
    check_allowed(request.session)
    if not services.tokens.is_enabled:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    pauses, owners = Pauses(services), None
    if message.owners is not None:
        named = pauses.between(message.owners)
        owners = {principal_of(owner.principal_type, owner.principal_name) async for owner in named}
    shown = []
    for token in services.tokens.tokens():
        if (owners is None or token.concerns(owners)) and _may_see(services, request, token):
            shown.append(_fields(services, token))
        await pauses.after(TOKEN_PARTS + len(token.renewers))
    return {"error_code": 0, "tokens": shown}


def _may_see(services: Services, request: Request, token: TokenInfo) -> bool:
    row = RIGHTS[request.api_key]
    return (
        token.concerns({request.session.principal})
        or authorization.may(services, request, row.token, token.token_id, tells=False)
        or authorization.may(services, request, row.user, token.owner, tells=False)
    )


def _fields(services: Services, token: TokenInfo) -> Fields:
    owner_type, owner_name = split(token.owner)
    requester_type, requester_name = split(token.requester)
    return {
        "principal_type": owner_type,
        "principal_name": owner_name,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester_name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": services.tokens.hmac_of(token.token_id),
        "renewers": [{"principal_type": kind, "principal_name": name} for kind, name in map(split, token.renewers)],
    }


HANDLER = Handler(message=handle, error=error)
