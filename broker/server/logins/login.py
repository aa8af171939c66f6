"""The log-in of one connection: answers its frames until the peer has logged in, and again when it renews its session.

Rule 1: while a log-in is in progress, this object is the connection's dispatch; then the broker's is, so that requests
        pay nothing for it. Work that may take long runs in a thread.
Rule 2: a refusal is answered after `delay_s`. The connection is closed when the peer has closed it, or LAST_WORD_S
        later: some clients do not see an answer that arrives together with the end. Nothing is read meanwhile.
Rule 3: a session that has a lifetime ends by elapsed time. Then the next request closes the connection, unless it
        renews the session (KIP-368).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.event_loop import RunBlocking
from logyard.broker.protocol.header import RequestHeader, parse_request_header
from logyard.broker.security.sasl.mechanism import Identity, LoginRefused, ServerExchange
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.logins.failures import LoginCounters, LoginFailures
from logyard.broker.server.logins.mechanisms import Mechanisms
from logyard.broker.server.logins.phase import (
    SASL_HANDSHAKE,
    AskVersions,
    Begin,
    LoginPhase,
    Refuse,
    RefuseRequest,
)
from logyard.broker.server.request import Answer, Dispatch, Encoded, Session

# Tokens up to this size are looked at on the event loop, where the mechanism is quick.
SMALL_TOKEN_BYTES = 4096
# A session is renewed no sooner than this after the last time (Kafka's rule).
RENEWAL_PAUSE_S = 1.0
LAST_WORD_S = 1.0

log = structlog.get_logger("logyard.login")


class LoginConnection(Protocol):
    """What a log-in needs of its connection."""

    session: Session

    def use(self, dispatch: Dispatch, frame_bytes_max: int) -> None: ...
    def drain(self) -> None: ...
    def mute(self, ms: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LoginRules:
    """What the log-ins of one listener have in common. `now_ms` is the wall clock, as in credentials."""

    mechanisms: Mechanisms
    dispatcher: Dispatcher
    failures: LoginFailures
    run_blocking: RunBlocking
    now_ms: Callable[[], int]
    delay_s: float
    token_bytes_max: int
    frame_bytes_max: int
    counters: LoginCounters


class Login:
    """See the head of this file."""

    def __init__(self, connection: LoginConnection, rules: LoginRules) -> None:
        self._connection = connection
        self._rules = rules
        self._phase = LoginPhase(rules.mechanisms.names)
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        self._identity: Identity | None = None  # who is logged in already, while a session is renewed
        self._end: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None  # after a refusal
        self._is_over = False
        self._renewed_s: float | None = None

    @classmethod
    def begin(cls, rules: LoginRules, connection: LoginConnection) -> None:
        """Have the connection's peer log in first."""
        login = cls(connection, rules)
        connection.session.renew = login.renew
        connection.session.gone = login.forget
        connection.use(login, rules.token_bytes_max)

    # -- the connection's dispatch while a log-in is in progress

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return True

    def __call__(self, session: Session, frame: memoryview) -> Answer:
        """Answer one frame. Raises CorruptData if the connection has to be closed at once."""
        step = self._phase.take(frame)
        match step:
            case AskVersions():
                return self._versions(session, frame)
            case Begin() | Refuse():
                return self._take(step)
            case RefuseRequest():
                answer = self._rules.dispatcher.refusal(session, frame, ErrorCode.ILLEGAL_SASL_STATE)
                return self._refuse(step.reason, answer)
        return self._token(step.data)

    def _versions(self, session: Session, frame: memoryview) -> Encoded:
        answer = self._rules.dispatcher(session, frame)
        if not isinstance(answer, bytes):
            raise CorruptData("ApiVersions has no answer")
        # Size, correlation id, error code: the same in all versions.
        self._phase.versions_answered(accepted=answer[8:10] == b"\0\0")
        return answer

    def _take(self, step: Begin | Refuse) -> Answer:
        if isinstance(step, Refuse):
            return self._refuse(step.reason, step.answer)
        self._mechanism = step.mechanism
        self._exchange = self._rules.mechanisms.exchange(step.mechanism)
        return step.answer if step.token is None else self._token(step.token)

    def _token(self, token: bytes) -> Answer:
        exchange = self._exchange
        if exchange is None:
            raise CorruptData("a token, but no mechanism")
        user = exchange.proves(token) if len(token) <= SMALL_TOKEN_BYTES else None
        wait_s = 0.0 if user is None else self._rules.failures.wait_s(self._connection.session.client_host, user)
        if exchange.is_slow or wait_s or len(token) > SMALL_TOKEN_BYTES:
            return tasks.answering(self._later(exchange, token, wait_s))
        try:
            return self._stepped(exchange, exchange.step(token))
        except LoginRefused as refused:
            return self._refused(exchange, refused)

    async def _later(self, exchange: ServerExchange, token: bytes, wait_s: float) -> Encoded:
        """Look at a token in a thread, after a pause for those who guess."""
        if wait_s:
            await asyncio.sleep(wait_s)
        if self._connection.session.is_gone:
            return None
        try:
            return self._stepped(exchange, await self._rules.run_blocking(partial(exchange.step, token)))
        except LoginRefused as refused:
            return await self._refused(exchange, refused)

    def _stepped(self, exchange: ServerExchange, answer: bytes) -> bytes:
        identity = exchange.identity
        if identity is None:
            return self._phase.token_answer(answer, 0)
        if self._identity is not None and identity.name != self._identity.name:
            text = (
                "Cannot change principals during re-authentication from "
                f"User.{self._identity.name}: User.{identity.name}"
            )
            raise LoginRefused("another principal than that of the session", text)
        return self._phase.token_answer(answer, self._complete(identity))

    # -- the session

    def _complete(self, identity: Identity) -> int:
        """Let the peer in. Returns the session's lifetime in milliseconds, 0 if it has none."""
        rules, session = self._rules, self._connection.session
        counters = rules.counters
        if self._identity is None:
            counters.succeeded += 1
        else:
            counters.renewed += 1
        self._identity, self._exchange = identity, None
        self._is_over = False
        session.principal = f"User:{identity.name}"
        session.is_token_login = identity.is_token
        self._connection.use(rules.dispatcher, rules.frame_bytes_max)
        lifetime_ms = self._lifetime_ms(identity)
        if lifetime_ms is None:
            return 0
        if not session.is_gone:
            self._end = asyncio.get_running_loop().call_later(lifetime_ms / 1000, self._expire)
        return lifetime_ms

    def _lifetime_ms(self, identity: Identity) -> int | None:
        longest = self._rules.mechanisms.reauth_ms(self._mechanism)
        ends = [] if longest <= 0 else [longest]
        if identity.expires_ms is not None:
            ends.append(identity.expires_ms - self._rules.now_ms())
        return max(0, min(ends)) if ends else None

    def _expire(self) -> None:
        """End the session: from now on a request closes the connection, or renews the session."""
        self._is_over = True
        self._connection.use(_Expired(self), self._rules.token_bytes_max)

    def close_expired(self) -> None:
        """Close the connection, as the session is over and the peer has not renewed it."""
        self._rules.counters.expired += 1
        log.info("session over, connection closed", **self._peer())
        self._connection.close()

    def renew(self, header: RequestHeader) -> Answer:
        """Answer the SaslHandshake of a peer that has logged in; None if it may not log in again now."""
        now = asyncio.get_running_loop().time()
        too_soon = self._renewed_s is not None and now - self._renewed_s < RENEWAL_PAUSE_S
        if self._end is None or too_soon:
            if self._is_over:
                self.close_expired()
            return None
        self._renewed_s = now
        self._end.cancel()
        self._end = None
        self._phase = LoginPhase(self._rules.mechanisms.names, self._mechanism)
        self._connection.use(self, self._rules.token_bytes_max)
        mechanism = self._mechanism
        answer = self._take(self._phase.renewal(header))
        self._mechanism = mechanism
        return answer

    def dispatch_expired(self, session: Session, frame: memoryview) -> Answer:
        """Take a request after the session's end."""
        if parse_request_header(frame).api_key == SASL_HANDSHAKE:
            return self._rules.dispatcher(session, frame)
        self.close_expired()
        return None

    def forget(self) -> None:
        """Stop the timers: the connection is gone."""
        for timer in (self._end, self._closing):
            if timer is not None:
                timer.cancel()
        self._end = self._closing = None

    # -- refusals

    def _refused(self, exchange: ServerExchange, refused: LoginRefused) -> "asyncio.Future[Encoded]":
        again = "authentication" if self._identity is None else "re-authentication"
        general = (
            f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        answer = self._phase.refusal(general if refused.told is None else refused.told)
        return self._refuse(str(refused), answer, exchange.claimed)

    def _refuse(self, reason: str, answer: bytes | None, user: str | None = None) -> "asyncio.Future[Encoded]":
        """Log the refusal; send the answer after the delay, and close (Rule 2)."""
        rules = self._rules
        rules.counters.refused += 1
        peer = self._peer()
        count = rules.failures.failed(str(peer["peer"]), user or "")
        if count is not None:
            shown = {} if user is None else {"user": user[:128]}
            log.warning("log-in refused", **peer, **shown, why=reason, within_a_minute=count)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Encoded] = loop.create_future()
        loop.call_later(rules.delay_s, self._send_refusal, future, answer)
        return future

    def _send_refusal(self, future: "asyncio.Future[Encoded]", answer: bytes | None) -> None:
        if answer is None or future.done():
            self._connection.drain()
        else:
            self._connection.mute(round(2000 * LAST_WORD_S))
            self._closing = asyncio.get_running_loop().call_later(LAST_WORD_S, self._connection.close)
        if not future.done():
            future.set_result(answer)

    def _peer(self) -> dict[str, object]:
        session = self._connection.session
        return {"listener": session.listener, "peer": session.client_host, "mechanism": self._mechanism or None}


class _Expired:
    """The connection's dispatch after the end of its session."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return True

    def __call__(self, session: Session, frame: memoryview) -> Answer:
        return self._login.dispatch_expired(session, frame)
