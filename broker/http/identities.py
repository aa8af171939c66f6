"""Who sends an HTTP request: by the file's token on a plain side; by certificate, password or token on one with TLS.

Rule 1: what the Authorization header says counts before a certificate. Whoever has neither is nobody.
Rule 2: passwords and tokens of OAuth are looked at in a thread, one at a time, so that log-ins to the listeners keep
        the others. Runs' tokens cost microseconds.
Rule 3: a refusal is answered after `delay_s`, and its connection is closed. Who guesses waits longer, and is named in
        the log, as at SASL's listeners; of more than WAITING_MAX such attempts of one address the others end at once.
"""

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog
from starlette.requests import Request

from logyard.broker.event_loop import RunBlocking
from logyard.broker.http import token
from logyard.broker.http.callers import ANONYMOUS, Caller
from logyard.broker.http.run_tokens import PREFIX, RunTokens
from logyard.broker.leases.book import LeaseError
from logyard.broker.security.passwords import Passwords
from logyard.broker.security.sasl.mechanism import LoginRefused, ServerExchange

WAITING_MAX = 16
NAME_MAX = 128

log = structlog.get_logger("logyard.login")


class Guessers(Protocol):
    """Counts failed log-ins of an address and user (server/logins/failures.py)."""

    def wait_s(self, address: str, user: str) -> float: ...
    def failed(self, address: str, user: str) -> int | None: ...


class LoginCounts(Protocol):
    """The counts of all log-ins of the broker."""

    succeeded: int
    refused: int


def unauthorized(message: str) -> LeaseError:
    """Return the refusal of a request that nobody known has sent."""
    return LeaseError("unauthorized", 401, message)


class OwnerOfTheFile:
    """A plain HTTP side: whoever has the token of the file may do everything."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    async def identify(self, request: Request) -> Caller:
        if not token.matches(request.headers.get("authorization"), self._secret):
            raise unauthorized("send the token of http.token as a bearer token")
        return Caller(ANONYMOUS, host_of(request), owns=True)


@dataclass(frozen=True, slots=True)
class LoginMeans:
    """What log-ins are compared with: users' passwords, tokens of OAuth (None: not enabled), tokens of runs."""

    passwords: Passwords
    oauth: Callable[[], ServerExchange] | None
    runs: RunTokens
    run_blocking: RunBlocking
    delay_s: float


class LoggedIn:
    """An HTTP side with TLS. See the head of this file."""

    def __init__(self, means: LoginMeans, guessers: Guessers, counts: LoginCounts) -> None:
        self._means = means
        self._guessers = guessers
        self._counts = counts
        self._turn = asyncio.Semaphore(1)
        self._waiting: Counter[str] = Counter()

    async def identify(self, request: Request) -> Caller:
        host, header = host_of(request), request.headers.get("authorization")
        if header is None:
            principal = getattr(request.state, "principal", ANONYMOUS)
            if principal == ANONYMOUS:
                raise unauthorized("log in: user and password (Basic), a client certificate, or a run's token (Bearer)")
            return Caller(principal, host)
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "bearer" and value.startswith(PREFIX):
            found = self._means.runs.find(value)
            if found is not None:
                return Caller(found.owner, host, found)
            return await self._refuse(
                host,
                "token of a run",
                "no such run",
                "the token is not known here, or its run has ended: get one from this broker by POST /tokens",
            )
        if scheme.lower() == "basic":
            return await self._by_password(host, value)
        if scheme.lower() == "bearer" and self._means.oauth is not None:
            return await self._by_oauth(host, self._means.oauth(), value)
        return await self._refuse(host, "", f"{scheme[:20]} is not served", "Basic and Bearer are expected")

    async def _by_password(self, host: str, value: str) -> Caller:
        try:
            user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (ValueError, binascii.Error):
            user = colon = password = ""
        means = self._means
        if not colon or not means.passwords.are_there:
            why = "no mechanism with passwords" if colon else "no user and password"
            return await self._refuse(host, user, why, "a user and a password of SASL are expected")
        await self._pause(host, self._guessers.wait_s(host, user))
        async with self._turn:
            known = await means.run_blocking(lambda: means.passwords.matches(user, password))
        if not known:
            return await self._refuse(host, user, "no such user, or wrong password", "wrong user or password")
        self._counts.succeeded += 1
        return Caller(f"User:{user}", host)

    async def _by_oauth(self, host: str, exchange: ServerExchange, value: str) -> Caller:
        def step() -> None:
            exchange.step(b"n,,\x01auth=Bearer " + value.encode() + b"\x01\x01")

        why = "the token of OAuth is refused"
        try:
            async with self._turn:
                await self._means.run_blocking(step)
        except LoginRefused as refused:
            why = str(refused)
        identity = exchange.identity
        if identity is None:
            return await self._refuse(host, exchange.claimed or "", why, "the token of OAuth is not accepted")
        self._counts.succeeded += 1
        return Caller(f"User:{identity.name}", host)

    async def _refuse(self, host: str, user: str, why: str, told: str) -> Caller:
        self._counts.refused += 1
        count = self._guessers.failed(host, user)
        if count is not None:
            log.warning(
                "log-in refused", listener="HTTP", peer=host, user=user[:NAME_MAX], why=why, within_a_minute=count
            )
        await self._pause(host, self._means.delay_s)
        raise unauthorized(told)

    async def _pause(self, host: str, seconds: float) -> None:
        """Let a guesser wait. Each address has few attempts that wait, so that they do not use up the connections."""
        if not seconds:
            return
        if self._waiting[host] >= WAITING_MAX:
            raise LeaseError("too_many_attempts", 429, "too many log-ins of this address fail: wait a minute")
        self._waiting[host] += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]


def host_of(request: Request) -> str:
    """Return the peer's address."""
    return "" if request.client is None else request.client.host
