"""Delegation tokens (KIP-48): made, renewed and ended by any broker, and known to all of them (facts §18.1).

A token's secret is HMAC-SHA512 of its id with `delegation.token.secret.key`, which is the same on all brokers. Clients
log in with it by SCRAM, so the SCRAM credentials follow from it; they are made in a thread when a token is learned.
"""

import asyncio
import base64
import hmac
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import structlog

from logyard.broker import tasks
from logyard.broker.config.typed_values import TypedValues
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.event_loop import RunBlocking
from logyard.broker.model import topic_id_text
from logyard.broker.security.sasl.scram import TokenCredential
from logyard.broker.znodes import delegation_tokens
from logyard.broker.znodes.delegation_tokens import TokenInfo
from logyard.broker.znodes.ops import Create, Delete, SetData, ZkCode, ZkOp, ZooKeeper
from logyard.broker.znodes.scram_credentials import DIGESTS, ITERATIONS_MIN, ScramCredential

SALT_BYTES = 24
# Far below ZooKeeper's jute.maxbuffer (1 MiB): it answers a longer request by closing this broker's connection.
TOKEN_BYTES_MAX = 256 * 1024

log = structlog.get_logger("logyard.tokens")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The keys `delegation.token.*`; without a secret there are no tokens."""

    secret: bytes | None = field(default=None, repr=False)
    max_lifetime_ms: int = 604_800_000
    renewal_ms: int = 86_400_000

    @classmethod
    def of(cls, config: TypedValues) -> "TokenSettings":
        """Read a broker's settings."""
        secret = config.optional_str("delegation.token.secret.key") or config.optional_str(
            "delegation.token.master.key"
        )
        return cls(
            secret.encode() if secret else None,
            config.int("delegation.token.max.lifetime.ms"),
            config.int("delegation.token.expiry.time.ms"),
        )


class Cancellable(Protocol):
    """A task."""

    def cancel(self) -> object: ...


@dataclass(frozen=True, slots=True)
class _Known:
    token: TokenInfo
    credentials: dict[str, ScramCredential] = field(repr=False)


class DelegationTokens:
    """See the head of this file. `now_ms` is the wall clock: all brokers compare the times in the znodes with it."""

    def __init__(
        self, settings: TokenSettings, zk: ZooKeeper, now_ms: Callable[[], int], run_blocking: RunBlocking
    ) -> None:
        self._settings = settings
        self._zk = zk
        self._now_ms = now_ms
        self._run_blocking = run_blocking
        self._known: dict[str, _Known] = {}
        self._by_hmac: dict[bytes, str] = {}
        self._sweeps: list[Cancellable] = []
        # One token at a time: what was learned earlier never comes after what was learned later.
        self._turn = asyncio.Lock()

    def start(self, interval_s: float, is_controller: Callable[[], bool]) -> None:
        """Begin to delete expired tokens while this broker is controller."""

        async def sweep() -> None:
            if is_controller():
                await self._delete_expired()

        if self.is_enabled:
            self._sweeps.append(tasks.every("expire tokens", interval_s, sweep))

    def close(self) -> None:
        """Delete no more tokens."""
        for task in self._sweeps:
            task.cancel()

    @property
    def is_enabled(self) -> bool:
        return self._settings.secret is not None

    def ids(self) -> Sequence[str]:
        """Return the ids of all tokens."""
        return list(self._known)

    def tokens(self) -> list[TokenInfo]:
        """Return all tokens, expired ones that are not deleted yet too."""
        return [known.token for known in self._known.values()]

    def hmac_of(self, token_id: str) -> bytes:
        """Return a token's secret."""
        assert self._settings.secret is not None
        return hmac.digest(self._settings.secret, token_id.encode(), "sha512")

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return what a log-in with a token is compared with."""
        known = self._known.get(token_id)
        if known is None:
            return None
        name = known.token.owner.partition(":")[2]
        return TokenCredential(known.credentials[mechanism], name, known.token.expires_ms)

    async def take(self, token_id: str, token: TokenInfo | None) -> None:
        """Note a token as ZooKeeper has it; None: it is gone."""
        secret = self.hmac_of(token_id)
        async with self._turn:
            if token is None:
                self._known.pop(token_id, None)
                self._by_hmac.pop(secret, None)
                return
            known = self._known.get(token_id)
            if known is None:
                credentials = await self._run_blocking(partial(_credentials, secret))
            else:
                credentials = known.credentials
            self._known[token_id] = _Known(token, credentials)
            self._by_hmac[secret] = token_id

    async def create(self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int) -> TokenInfo:
        """Make a token; a lifetime that is not positive is the longest. Raises ApiError."""
        self._check_enabled()
        settings, now_ms = self._settings, self._now_ms()
        longest = settings.max_lifetime_ms
        max_ms = now_ms + (min(lifetime_ms, longest) if lifetime_ms > 0 else longest)
        token = TokenInfo(
            token_id=topic_id_text(uuid.uuid4()),
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issued_ms=now_ms,
            max_ms=max_ms,
            expires_ms=min(max_ms, now_ms + settings.renewal_ms),
        )
        content = delegation_tokens.encode(token)
        if len(content) > TOKEN_BYTES_MAX:
            raise too_long()
        await self._write(Create(delegation_tokens.path(token.token_id), content), token)
        await self.take(token.token_id, token)
        log.info("token created", owner=owner, requester=requester)
        return token

    async def renew(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Renew a token; a negative period is the default one. Returns when it expires now. Raises ApiError."""
        token = self._usable(principal, secret)
        return await self._expire_at(
            token, self._now_ms() + (self._settings.renewal_ms if period_ms < 0 else period_ms)
        )

    async def expire(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Have a token expire after a period; delete it if that is negative, expired or not. Otherwise as `renew`."""
        if period_ms >= 0:
            return await self._expire_at(self._usable(principal, secret), self._now_ms() + period_ms)
        await self._delete(self._own(principal, secret))
        return self._now_ms()

    async def _delete_expired(self) -> None:
        now_ms = self._now_ms()
        for token in [token for token in self.tokens() if token.is_expired(now_ms)]:
            try:
                await self._delete(token)
            except ApiError as refusal:
                log.warning("an expired token is still there", owner=token.owner, error=str(refusal))

    def _own(self, principal: str, secret: bytes) -> TokenInfo:
        """Return the token that the principal may renew and end. Raises ApiError."""
        self._check_enabled()
        token_id = self._by_hmac.get(secret)
        if token_id is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        token = self._known[token_id].token
        if not token.may_renew(principal):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _usable(self, principal: str, secret: bytes) -> TokenInfo:
        """As `_own`, and it has not expired."""
        token = self._own(principal, secret)
        if token.is_expired(self._now_ms()):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return token

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    async def _expire_at(self, token: TokenInfo, expires_ms: int) -> int:
        changed = replace(token, expires_ms=min(token.max_ms, expires_ms))
        # Not created if another broker has just deleted it.
        await self._write(SetData(delegation_tokens.path(token.token_id), delegation_tokens.encode(changed)), token)
        await self.take(token.token_id, changed)
        return changed.expires_ms

    async def _delete(self, token: TokenInfo) -> None:
        await self._write(Delete(delegation_tokens.path(token.token_id)), token)
        await self.take(token.token_id, None)

    async def _write(self, change: ZkOp, token: TokenInfo) -> None:
        """Write a change, and its notification. Raises ApiError if the token is gone, or nothing could be written."""
        notification = Create(delegation_tokens.SEQUENCE_PREFIX, token.token_id.encode(), sequential=True)
        result, _ = await self._zk.multi([change, notification])
        if result.code is ZkCode.NO_NODE:
            await self.take(token.token_id, None)
            if isinstance(change, Delete):
                return
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not result.ok:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refuses the change: {result.code.value}")


def too_long() -> ApiError:
    """Return the refusal of a token with more renewers than ZooKeeper takes."""
    return ApiError(ErrorCode.INVALID_REQUEST, f"a token has at most {TOKEN_BYTES_MAX} bytes: name fewer renewers")


def _credentials(secret: bytes) -> dict[str, ScramCredential]:
    """Derive what SCRAM compares with; the password is the secret in base64. Takes milliseconds."""
    password = base64.b64encode(secret).decode()
    return {
        mechanism: ScramCredential.of_password(mechanism, password, ITERATIONS_MIN, secrets.token_bytes(SALT_BYTES))
        for mechanism in DIGESTS
    }
