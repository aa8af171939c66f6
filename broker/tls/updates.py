"""Changes of TLS while the broker runs: checked before they are stored, and made when they come back from ZooKeeper.

Stores are read in a thread. What may change is Kafka's list (renewal.py); every other setting of a listener's security
needs a restart. Passwords are stored encrypted.
"""

import asyncio
from collections.abc import Mapping

import structlog

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.listener_keys import base_of, key_of
from logyard.broker.config.security_keys import RENEWABLE
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.event_loop import RunBlocking
from logyard.broker.tls.listeners import TlsListeners
from logyard.broker.tls.password_encoder import PasswordEncoder
from logyard.broker.tls.problems import TlsProblem

log = structlog.get_logger("logyard.tls")


class TlsUpdates:
    """One for each broker. `config` is that of the file, which has the secret of stored passwords."""

    def __init__(self, config: BrokerConfig, listeners: TlsListeners, run_blocking: RunBlocking) -> None:
        self.config = config
        self._listeners = listeners
        self._run_blocking = run_blocking
        self._encoder = PasswordEncoder(config)
        self._running = config
        self._one_at_a_time = asyncio.Lock()

    @property
    def has_listeners(self) -> bool:
        """Whether any listener has TLS; none has before `open`."""
        return self._listeners.is_open

    def open(self, config: BrokerConfig) -> None:
        """Open the TLS of all listeners. Raises TlsProblem."""
        self._running = config
        self._listeners.open(config)

    def decode(self, encoded: str) -> str:
        """Return a stored password. Raises ValueError."""
        return self._encoder.decode(encoded)

    def encoded(self, before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
        """Return the overrides to be stored: a password that differs from the stored one is encrypted.

        :raises ApiError: INVALID_CONFIG (there is no secret to encrypt it with).
        """
        return {
            name: self._encode(name, value) if _is_password(name) and before.get(name) != value else value
            for name, value in after.items()
        }

    def _encode(self, name: str, password: str) -> str:
        try:
            return self._encoder.encode(password)
        except ValueError as problem:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: {problem}") from None

    def decoded(self, overrides: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
        """Return overrides with their passwords; those that are in `known` are the encrypted ones.

        :raises ApiError: INVALID_CONFIG (one cannot be decrypted).
        """
        found = dict(overrides)
        for name, value in overrides.items():
            if _is_password(name) and known.get(name) == value:
                try:
                    found[name] = self.decode(value)
                except ValueError as problem:
                    raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: {problem}") from None
        return found

    async def check(self, config: BrokerConfig) -> None:
        """Refuse a configuration that the running listeners cannot take.

        :raises ApiError: INVALID_CONFIG, as in Kafka.
        """
        fixed = sorted(name for name in _of_listeners(config, self._running) if base_of(name) not in RENEWABLE)
        if fixed:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{', '.join(fixed)}: cannot change while the listener runs")
        try:
            await self._run_blocking(lambda: self._listeners.renewed(config))
        except TlsProblem as problem:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(problem)) from None

    async def take(self, config: BrokerConfig) -> None:
        """Use the stores of this configuration, and the files as they are now; what is wrong changes nothing."""
        async with self._one_at_a_time:
            try:
                renewed = await self._run_blocking(lambda: self._listeners.renewed(config))
            except TlsProblem as problem:
                log.error("the listeners keep their stores", error=str(problem))
                return
            self._listeners.use(renewed)
            for name in renewed:
                log.info("stores read again", listener=name)


def _is_password(name: str) -> bool:
    key = key_of(name)
    return key is not None and key.sensitive


def _of_listeners(one: BrokerConfig, other: BrokerConfig) -> set[str]:
    """Return the names of listeners' settings of security that differ."""
    mine, others = one.security_of_listeners(), other.security_of_listeners()
    return {name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name)}
