"""/delegation_token: the tokens with which clients log in on behalf of a user, and notifications of changes (KIP-48).

Reads versions 1 to 3, writes 3. The tokens' secrets are not in ZooKeeper: they follow from their ids (facts §18.1).
"""

from collections.abc import Set
from dataclasses import dataclass

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import fields
from logyard.broker.znodes.configs import desanitize, sanitize

ROOT = "/delegation_token"
TOKENS = f"{ROOT}/tokens"
CHANGES = f"{ROOT}/token_changes"
SEQUENCE_PREFIX = f"{CHANGES}/token_change_"  # for a sequential create; its data is the token's id
ID_MAX = 256


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token: principals are `User:name`, times are milliseconds of the wall clock."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def concerns(self, principals: Set[str]) -> bool:
        """Whether one of the principals owns the token, has asked for it, or may renew it."""
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))

    def may_renew(self, principal: str) -> bool:
        """Whether the principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms


def path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def change_path(name: str) -> str:
    return f"{CHANGES}/{name}"


def encode(token: TokenInfo) -> bytes:
    return fields.dump(
        {
            "version": 3,
            "owner": sanitize(token.owner),
            "tokenRequester": sanitize(token.requester),
            "renewers": [sanitize(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def decode(data: bytes, where: str = f"{TOKENS}/?") -> TokenInfo:
    """Read a token. Raises CorruptData."""
    content = fields.Fields.parse(where, data)
    if content.version() > 3:
        raise content.wrong("version", "version 1, 2 or 3")
    owner = desanitize(content.text("owner"))
    requester = content.optional_text("tokenRequester")
    return TokenInfo(
        content.text("tokenId"),
        owner,
        owner if requester is None else desanitize(requester),
        tuple(desanitize(renewer) for renewer in content.texts("renewers")),
        content.integer_text("issueTimestamp"),
        content.integer_text("maxTimestamp"),
        content.integer_text("expiryTimestamp"),
    )


def decode_change(data: bytes, where: str = f"{CHANGES}/?") -> str:
    """Return the id of the token that has changed. Raises CorruptData."""
    token_id = data.decode("utf-8", "replace")
    if not token_id or "/" in token_id or len(token_id) > ID_MAX:
        raise CorruptData(f"znode {where}: the id of a token is expected")
    return token_id
