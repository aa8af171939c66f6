"""Tokens without a signature (`alg` none), Kafka's default for OAUTHBEARER: for tests, never for production."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logyard.broker.security.sasl.bearer_tokens import BearerToken, TokenRefused

OPTION_PREFIX = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class UnsecuredRules:
    """The options of the login module, without their prefix (facts §18.1)."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "UnsecuredRules":
        """Read the options of OAuthBearerLoginModule. Raises ValueError."""

        def option(name: str) -> str:
            return options.get(OPTION_PREFIX + name, "").strip()

        skew = option("AllowableClockSkewMs") or "0"
        if not skew.isascii() or not skew.isdigit():
            raise ValueError(f"{OPTION_PREFIX}AllowableClockSkewMs: a number of milliseconds is expected")
        return cls(
            option("PrincipalClaimName") or "sub",
            option("ScopeClaimName") or "scope",
            tuple(option("RequiredScope").split()),
            int(skew),
        )


class UnsecuredTokens:
    """Accepts every well-formed token that has not expired. `now_ms` is the wall clock, as in the tokens."""

    def __init__(self, rules: UnsecuredRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms

    def validate(self, token: str) -> BearerToken:
        """Return what a token says. Raises TokenRefused."""
        header, claims = _read(token)
        if header.get("alg") != "none":
            raise TokenRefused("the token is signed, but no keys are configured to verify it")
        rules, now_ms = self._rules, self._now_ms()
        principal = claims.get(rules.principal_claim)
        if not isinstance(principal, str) or not principal.strip():
            raise TokenRefused(f"the token has no claim {rules.principal_claim}")
        expires_ms = milliseconds(claims, "exp")
        issued_ms = milliseconds(claims, "iat") if "iat" in claims else None
        if issued_ms is not None and now_ms + rules.clock_skew_ms < issued_ms:
            raise TokenRefused("the token is issued in the future")
        if now_ms - rules.clock_skew_ms >= expires_ms:
            raise TokenRefused("the token has expired")
        if issued_ms is not None and issued_ms >= expires_ms:
            raise TokenRefused("the token expires before it is issued")
        missing = set(rules.required_scope) - scopes_of(claims.get(rules.scope_claim))
        if missing:
            raise TokenRefused("the token lacks a scope", "insufficient_scope", f"[{', '.join(rules.required_scope)}]")
        return BearerToken(principal, expires_ms)


def scopes_of(claim: object) -> set[str]:
    """Return the scopes of a claim: a text with blanks in between, or a list."""
    if isinstance(claim, str):
        return set(claim.split())
    return {scope for scope in claim if isinstance(scope, str)} if isinstance(claim, list) else set()


def _read(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("a token of three parts is expected")
    if parts[2]:
        raise TokenRefused("the token is signed, but no keys are configured to verify it")
    return decoded(parts[0]), decoded(parts[1])


def decoded(part: str) -> dict[str, Any]:
    """Return the JSON object in one part of a token. Raises TokenRefused."""
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused("the token is not base64url of JSON") from None
    if not isinstance(found, dict):
        raise TokenRefused("the token has no JSON object")
    return found


def milliseconds(claims: Mapping[str, Any], name: str) -> int:
    """Return a claim that is a time in seconds. Raises TokenRefused."""
    seconds = claims.get(name)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) < 1e14:
        raise TokenRefused(f"the token has no number as {name}")
    return int(seconds * 1000)
