"""Signed tokens (JWS) verified with the keys of a JWKS document, as Kafka's OAuthBearerValidatorCallbackHandler does
(facts §18.1). The only module that knows PyJWT.

A token needs `exp`, `iat`, a subject and a signature by one of the keys. Only algorithms with public keys are accepted,
so that nobody can sign with what is public.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from logyard.broker.late_import import imported_when_used
from logyard.broker.security.sasl.bearer_tokens import BearerToken, TokenRefused
from logyard.broker.security.sasl.unsecured_jws import milliseconds

with imported_when_used("jwt"):
    import jwt

# By type of key (RFC 7518).
_ALGORITHMS: Final = MappingProxyType(
    {
        "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        "EC": frozenset({"ES256", "ES384", "ES512", "ES256K"}),
        "OKP": frozenset({"EdDSA"}),
    }
)
# A token without a key id is tried with so many keys at most.
KEYS_TRIED = 16
KEY_ID_MAX = 1000


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token has to say. An empty audience or issuer is not asked for; with an `aud` it is then refused."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One public key of a JWKS document."""

    key_id: str | None
    kind: str
    key: Any
    algorithm: str | None = None
    """The only algorithm that it is for, if it names one (RFC 7517)."""


def parse_keys(document: bytes) -> tuple[SigningKey, ...]:
    """Read a JWKS document; keys of other kinds, or for encryption, are left out. Raises ValueError."""
    try:
        listed = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("a JSON object with `keys` is expected") from None
    keys = []
    for entry in listed if isinstance(listed, list) else ():
        kind = entry.get("kty") if isinstance(entry, dict) else None
        if not isinstance(kind, str) or kind not in _ALGORITHMS or entry.get("use", "sig") != "sig":
            continue
        try:
            made = jwt.PyJWK.from_dict(entry)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        keys.append(SigningKey(entry.get("kid"), kind, made.key, entry.get("alg")))
    if not keys:
        raise ValueError("there is no key for signatures in it")
    return tuple(keys)


class JwksTokens:
    """Validates tokens with the latest keys. `unknown_key` is called with the id of a key that is not among them."""

    def __init__(
        self, rules: TokenRules, keys: Callable[[], Sequence[SigningKey]], unknown_key: Callable[[str], None]
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._unknown_key = unknown_key

    def validate(self, token: str) -> BearerToken:
        """Return what a token says. Raises TokenRefused."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenRefused("the token is no JWS") from None
        claims = self._verified(token, header)
        principal = claims.get(self._rules.subject_claim)
        if not isinstance(principal, str) or not principal.strip():
            raise TokenRefused(f"the token has no claim {self._rules.subject_claim}")
        expires_ms = milliseconds(claims, "exp")
        if milliseconds(claims, "iat") > expires_ms:
            raise TokenRefused("the token expires before it is issued")
        return BearerToken(principal.strip(), expires_ms)

    def _verified(self, token: str, header: Mapping[str, Any]) -> dict[str, Any]:
        key_id, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(algorithm, str):
            raise TokenRefused("no key of the JWKS document fits the token")
        fitting = [
            key for key in self._keys() if algorithm in _ALGORITHMS[key.kind] and key.algorithm in (None, algorithm)
        ]
        if key_id is not None:
            fitting = [key for key in fitting if key.key_id == key_id]
            if not fitting and isinstance(key_id, str) and len(key_id) <= KEY_ID_MAX:
                self._unknown_key(key_id)
        refused = TokenRefused("no key of the JWKS document fits the token")
        for key in fitting[:KEYS_TRIED]:
            try:
                return self._decoded(token, key, algorithm)
            except jwt.InvalidKeyError:
                continue  # of another curve than the algorithm's
            except jwt.InvalidSignatureError:
                refused = TokenRefused("the token's signature is wrong")
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
                raise TokenRefused(f"the token is refused: {type(error).__name__}") from None
        raise refused

    def _decoded(self, token: str, key: SigningKey, algorithm: str) -> dict[str, Any]:
        rules = self._rules
        return jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=list(rules.audience) or None,
            issuer=rules.issuer,
            leeway=rules.clock_skew_s,
            # As in Kafka `iat` may be in the future: the issuer's clock is not this broker's, and `nbf` says from when.
            options={"require": ["exp", "iat"], "verify_iat": False, "verify_sub": rules.subject_claim == "sub"},
        )
