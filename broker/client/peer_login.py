"""The log-in of a link to another broker: ApiVersions v0, SaslHandshake, tokens, as in Kafka (facts §18.3)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import RunBlocking
from logyard.broker.replication.ports import LinkError
from logyard.broker.security.sasl.mechanism import ClientExchange, LoginRefused

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
AUTHENTICATE_VERSION_MAX = 2
# As in Kafka; SCRAM has the most, three.
TOKENS_MAX = 16
FIRST_CORRELATION_ID: Final = 2**31 - 8
"""Those of a log-in are 2³¹ - 8 to 2³¹ - 1, so that they are never those of a request."""


class Ask(Protocol):
    """Sends a request over the link that logs in, and returns the decoded answer. Raises LinkError."""

    def __call__(self, api_key: int, version: int, fields: dict[str, Any], /) -> Awaitable[Any]: ...


class PeerRefusesLogin(LinkError):
    """The other broker refuses the log-in: its users, or this broker's, have to be changed."""


@dataclass(frozen=True, slots=True)
class PeerSession:
    """How long a session lasts in seconds (None: for ever), and the version of SaslAuthenticate that began it."""

    lifetime_s: float | None
    version: int


@dataclass(frozen=True, slots=True)
class PeerLogin:
    """How this broker logs in: the mechanism, and what begins its exchange. Steps run in a thread."""

    mechanism: str
    new_exchange: Callable[[str], ClientExchange]
    """Begins the exchange with the broker at a host."""
    run_blocking: RunBlocking

    async def log_in(self, ask: Ask, host: str) -> PeerSession:
        """Log in on a new link to `host`.

        Raises LinkError; PeerRefusesLogin if trying again soon is of no use.
        """
        offered = await ask(API_VERSIONS, 0, {})
        served = {api.api_key: api.max_version for api in offered.api_keys}
        version = min(AUTHENTICATE_VERSION_MAX, served.get(SASL_AUTHENTICATE, -1))
        if version < 0:
            raise PeerRefusesLogin("it does not serve SaslAuthenticate")
        return await self.renew(ask, host, version)

    async def renew(self, ask: Ask, host: str, version: int) -> PeerSession:
        """Log in again on the same link, with the same version of SaslAuthenticate (KIP-368); raises as `log_in`."""
        hello = await ask(SASL_HANDSHAKE, 1, {"mechanism": self.mechanism})
        if hello.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise PeerRefusesLogin(f"it enables {', '.join(hello.mechanisms)}, not {self.mechanism}")
        if hello.error_code:
            raise PeerRefusesLogin(f"it answers SaslHandshake with error {hello.error_code}")
        exchange = self.new_exchange(host)
        try:
            return await self._exchange(ask, version, exchange)
        except LoginRefused as error:
            raise PeerRefusesLogin(str(error)) from None

    async def _exchange(self, ask: Ask, version: int, exchange: ClientExchange) -> PeerSession:
        try:
            token: bytes | None = await self.run_blocking(exchange.first)
        except LoginRefused as error:
            raise PeerRefusesLogin(f"a log-in cannot begin: {error}") from None
        lifetime_ms = 0
        for _ in range(TOKENS_MAX):
            if token is None:
                break
            answer = await ask(SASL_AUTHENTICATE, version, {"auth_bytes": token})
            if answer.error_code:
                raise PeerRefusesLogin(answer.error_message or f"error {answer.error_code}")
            lifetime_ms = answer.session_lifetime_ms if version >= 1 else 0
            token = await self.run_blocking(partial(exchange.step, bytes(answer.auth_bytes)))
        if not exchange.is_done:
            raise PeerRefusesLogin("it ended the log-in too early")
        return PeerSession(lifetime_ms / 1000 if lifetime_ms > 0 else None, version)
