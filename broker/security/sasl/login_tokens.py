"""The tokens with which this broker logs in to others by OAUTHBEARER, got as Kafka's login handlers get them
(facts §18.3).

They come from a token endpoint by client credentials (RFC 6749, 4.4), from a file, or are made here, without a
signature. One token serves all links until it is to be renewed. All of this may wait: call it in a thread. No
exception and no `repr` has a secret or a token.
"""

import base64
import http.client
import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, unquote, urlsplit

from logyard.broker.security.sasl.bearer_tokens import TokenRefused
from logyard.broker.security.sasl.mechanism import LoginRefused
from logyard.broker.security.sasl.unsecured_jws import decoded, milliseconds

ANSWER_BYTES_MAX = 1 << 20
TOKEN_FILE_BYTES_MAX = 1 << 20
# After a renewal that has failed, while the old token lives: an endpoint that does not answer delays one log-in by its
# time-out, and not each of them.
RETRY_S = 10.0
_TOKEN = re.compile(r"[-_.a-zA-Z0-9]+")
_ERROR = re.compile(r"[a-z_]{1,64}")
_PREFIX = "unsecuredLogin"
_RESERVED: Final = ("iat", "exp")


@dataclass(frozen=True, slots=True)
class RefreshRules:
    """`sasl.login.refresh.*`: at which part of its life a token is renewed, not too often and not too late."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300


def refresh_after_s(age_s: float, left_s: float, rules: RefreshRules, chance: float) -> float:
    """Return in how many seconds a token is renewed that is `age_s` old and lives for `left_s` (facts §18.3).

    `chance` is between 0 and 1.
    """
    part = rules.factor + rules.jitter * chance
    if rules.min_period_s + rules.buffer_s > left_s:
        return left_s * part
    proposed = (age_s + left_s) * part - age_s
    if proposed > left_s - rules.buffer_s:
        return left_s - rules.buffer_s
    return max(proposed, rules.min_period_s)


class LoginTokens:
    """Gives the token to log in with, for any thread. `fetch` gets a new one; it raises LoginRefused.

    `now_ms` is the wall clock, as in tokens; what passes between a token and its renewal is elapsed time.
    """

    def __init__(
        self,
        fetch: Callable[[], str],
        rules: RefreshRules,
        subject_claim: str,
        now_ms: Callable[[], int],
        chance: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._rules, self._subject_claim = fetch, rules, subject_claim
        self._now_ms, self._chance, self._monotonic = now_ms, chance, monotonic
        self._renewing = threading.Lock()
        self._token = ""
        self._renewed_at_s = self._over_at_s = float("-inf")

    def token(self) -> str:
        """Return a token that is valid. Raises LoginRefused: there is none.

        While one caller waits for a new token, the others go on with the old one, as long as it lives.
        """
        now_s = self._monotonic()
        if now_s < self._renewed_at_s or not self._renewing.acquire(blocking=now_s >= self._over_at_s):
            return self._token
        try:
            if self._monotonic() >= self._renewed_at_s:
                self._renew()
            return self._token
        finally:
            self._renewing.release()

    def _renew(self) -> None:
        try:
            self._take(self._fetch())
        except LoginRefused:
            now_s = self._monotonic()
            if now_s >= self._over_at_s:
                raise
            self._renewed_at_s = min(now_s + RETRY_S, self._over_at_s)

    def _take(self, token: str) -> None:
        now_ms, now_s = self._now_ms(), self._monotonic()
        claims = self._claims(token)
        try:
            left_s = (milliseconds(claims, "exp") - now_ms) / 1000
            age_s = max(0.0, (now_ms - milliseconds(claims, "iat")) / 1000) if "iat" in claims else 0.0
        except TokenRefused as problem:
            raise LoginRefused(str(problem)) from None
        if left_s <= 0:
            raise LoginRefused("the token has expired")
        self._token = token
        self._over_at_s = now_s + left_s
        self._renewed_at_s = now_s + refresh_after_s(age_s, left_s, self._rules, self._chance())

    def _claims(self, token: str) -> dict[str, Any]:
        parts = token.split(".")
        if len(parts) != 3 or not _TOKEN.fullmatch(token):
            raise LoginRefused("what was given is no token of three parts")
        try:
            claims = decoded(parts[1])
        except TokenRefused as problem:
            raise LoginRefused(str(problem)) from None
        subject = claims.get(self._subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise LoginRefused(f"the token has no claim {self._subject_claim}")
        return claims


# -- where they come from


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A token endpoint, and who asks it. Times are seconds."""

    url: str = field(repr=False)  # it may have a secret in it
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    encodes: bool = False
    """Whether id and secret are URL-encoded first (sasl.oauthbearer.header.urlencode)."""
    connect_s: float = 10.0
    read_s: float = 10.0

    def fetch(self) -> str:
        """Ask for a token. Raises LoginRefused."""
        address = urlsplit(self.url)
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        body = "grant_type=client_credentials" + (f"&scope={quote_plus(self.scope)}" if self.scope else "")
        headers = {
            "Accept": "application/json",
            "Authorization": self._authorization(),
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        path = (address.path or "/") + (f"?{address.query}" if address.query else "")
        connection = kind(address.hostname or "", address.port, timeout=self.connect_s)
        try:
            connection.connect()
            connection.sock.settimeout(self.read_s)
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX)
        except OSError as problem:
            raise LoginRefused(f"the token endpoint {self.shown}: {problem or type(problem).__name__}") from None
        # ValueError: the URL has characters that a request cannot have; such a text has the URL in it.
        except (ValueError, http.client.HTTPException) as problem:
            raise LoginRefused(f"the token endpoint {self.shown}: {type(problem).__name__}") from None
        finally:
            connection.close()
        if answer.status not in (200, 201):
            raise LoginRefused(
                f"the token endpoint {self.shown} refuses client {self.client_id!r}: {answer.status}{_error(data)}"
            )
        token = _member(data, "access_token")
        if not token:
            raise LoginRefused(f"the token endpoint {self.shown} answers without an access_token")
        return token.strip()

    @property
    def shown(self) -> str:
        """The address without what may be secret: a user, a password, a query."""
        address = urlsplit(self.url)
        port = "" if address.port is None else f":{address.port}"
        return f"{address.scheme}://{address.hostname}{port}{address.path}"

    def _authorization(self) -> str:
        words = (self.client_id, self.client_secret)
        named = ":".join(quote_plus(word) if self.encodes else word for word in words)
        return "Basic " + base64.b64encode(named.encode()).decode()


def from_file(path: Path) -> str:
    """Return the token in a file, which somebody else renews. Raises LoginRefused."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(TOKEN_FILE_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "no text"
        raise LoginRefused(f"the token in {path}: {reason}") from None


def file_of(url: str) -> Path:
    """Return the file of a `file:` URL."""
    return Path(unquote(urlsplit(url).path))


def _member(data: bytes, name: str) -> str:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""


def _error(data: bytes) -> str:
    """Return the error code of RFC 6749 in an answer, such as invalid_client; the rest may hold anything."""
    said = _member(data, "error")
    return f" {said}" if _ERROR.fullmatch(said) else ""


# -- tokens without a signature


class UnsecuredLogin:
    """Makes tokens from the options `unsecuredLogin…` of OAuthBearerLoginModule, as Kafka does: for tests only."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """Raise ValueError naming the option that is wrong."""
        self._now_ms = now_ms
        lifetime = options.get(f"{_PREFIX}LifetimeSeconds", "3600")
        if not lifetime.isascii() or not lifetime.isdigit():
            raise ValueError(f"{_PREFIX}LifetimeSeconds: a number of seconds is expected")
        self._lifetime_s = int(lifetime)
        self.subject_claim = options.get(f"{_PREFIX}PrincipalClaimName", "").strip() or "sub"
        self._claims = dict(_claims(options))
        subject = self._claims.get(self.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise ValueError(f'{_PREFIX}StringClaim_{self.subject_claim}="…" is expected: the user of this broker')

    def fetch(self) -> str:
        """Return a new token."""
        now_s = self._now_ms() / 1000
        claims = {**self._claims, "iat": now_s, "exp": now_s + self._lifetime_s}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _claims(options: Mapping[str, str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in options.items():
        kind, _, claim = name.removeprefix(_PREFIX).partition("_")
        if not name.startswith(_PREFIX) or not claim or kind not in ("StringClaim", "NumberClaim", "ListClaim"):
            continue
        if claim in _RESERVED:
            raise ValueError(f"{name}: this claim is set by the broker")
        if kind == "NumberClaim":
            try:
                found.append((claim, float(value)))
            except ValueError:
                raise ValueError(f"{name}: a number is expected") from None
        else:
            # A list begins with the character that separates its elements.
            found.append((claim, value if kind == "StringClaim" else value[1:].split(value[:1]) if value[1:] else []))
    return found


def _encoded(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")
