"""Tokens for OAUTHBEARER: one that is given, or those of a token endpoint by client credentials (RFC 6749, 4.4)."""

import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.login import tls
from logyard.login.security import BadSettings, Security

_PATIENCE_S = 10.0
_ANSWER_MAX = 1024 * 1024
_RENEW_AT = 0.8  # of a token's life, as Kafka's clients do
_RETRY_S = 10.0  # after a failure, while the old token lives
_LIFE_S = 60.0  # if the endpoint does not tell
_LIFE_MAX_S = 86_400.0


class NoToken(LogyardError):
    """The token endpoint did not answer, or refused the client; the text never holds a secret."""


class TokenSource:
    """Gives a token that is still valid; asks the endpoint when the last one is nearly over. For any thread.

    An endpoint that fails is asked again after a pause, and the old token serves while it lives.
    """

    def __init__(self, security: Security) -> None:
        self._security = security
        self._renewing = threading.Lock()
        self._token, self._renew_at, self._over_at = "", 0.0, 0.0

    def token(self) -> str:
        """Raises NoToken, BadSettings.

        While one caller asks for a new token, others go on with the old one as long as it lives.
        """
        if self._security.oauth_token is not None:
            return self._security.oauth_token
        now = time.monotonic()
        if now < self._renew_at or not self._renewing.acquire(blocking=now >= self._over_at):
            return self._token
        try:
            if time.monotonic() >= self._renew_at:
                self._renew()
            return self._token
        finally:
            self._renewing.release()

    def _renew(self) -> None:
        began = time.monotonic()
        try:
            token, life_s = _ask(self._security)
        except (NoToken, BadSettings):  # the second for authorities that are being replaced, say
            now = time.monotonic()
            if now >= self._over_at:
                raise
            self._renew_at = min(now + _RETRY_S, self._over_at)
            return
        self._token, self._over_at = token, began + life_s
        self._renew_at = began + life_s * _RENEW_AT


def _ask(security: Security) -> tuple[str, float]:
    """Ask the endpoint: the token and its life in seconds. Raises NoToken, BadSettings."""
    url = security.oauth_token_url or ""
    if not _is_http(url):
        raise BadSettings(f"oauth_token_url {url!r}: an http or https URL is expected")
    form = {"grant_type": "client_credentials"}
    if security.oauth_scope:
        form["scope"] = security.oauth_scope
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), method="POST")
    request.add_header("Accept", "application/json")
    named = f"{security.oauth_client_id}:{security.oauth_client_secret}".encode()
    # Not for the target of a redirection.
    request.add_unredirected_header("Authorization", "Basic " + b64encode(named).decode())
    trusted = _trusted(security.oauth_cafile) if url.startswith("https") else None
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S, context=trusted) as response:
            answer: Any = json.loads(response.read(_ANSWER_MAX))
    except urllib.error.HTTPError as problem:
        raise NoToken(
            f"the token endpoint {url} refuses client {security.oauth_client_id!r}: {problem.code} {_reason(problem)}"
        ) from None
    except (OSError, ValueError, http.client.HTTPException, RecursionError) as problem:
        reason = getattr(problem, "reason", None) or type(problem).__name__
        raise NoToken(f"the token endpoint {url} gives no token: {reason}") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise NoToken(f"the token endpoint {url} answers without an access_token")
    life = answer.get("expires_in")
    return token, min(life, _LIFE_MAX_S) if isinstance(life, (int, float)) and life > 0 else _LIFE_S


def _is_http(url: str) -> bool:
    try:
        return urllib.parse.urlsplit(url).scheme in ("http", "https")
    except ValueError:  # a bracket that is not closed, say
        return False


def _trusted(cafile: str | None) -> ssl.SSLContext:
    """Whom the endpoint is checked with. Raises BadSettings."""
    try:
        made = ssl.create_default_context(cafile=cafile)
    except OSError as problem:  # a certificate that cannot be read is one
        reason = getattr(problem, "reason", None) or problem.strerror
        raise BadSettings(f"oauth_cafile {cafile}: {reason}") from None
    tls.trust_each(made)
    return made


def _reason(problem: urllib.error.HTTPError) -> str:
    """The error code of RFC 6749 in the answer, such as invalid_client; the rest may hold anything."""
    try:
        said = json.loads(problem.read(_ANSWER_MAX)).get("error", "")
    except (OSError, ValueError, AttributeError, http.client.HTTPException, RecursionError):
        return ""
    return said if isinstance(said, str) and said.replace("_", "").isalnum() else ""
