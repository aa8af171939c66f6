"""Whether a password that HTTP sends is that of a user of SASL: of PLAIN, or of SCRAM by its stored keys (facts §18.1).

A server of SCRAM never sees a password and computes next to nothing. Here the password comes by itself (inside TLS), so
the keys are derived from it, which takes milliseconds: `matches` belongs in a thread.
"""

import hmac
from collections.abc import Callable, Mapping

from logyard.broker.security.sasl.mechanism import LoginRefused, ServerExchange
from logyard.broker.security.sasl.scram import CLIENT_ITERATIONS_MAX
from logyard.broker.znodes.scram_credentials import ITERATIONS_MIN, ScramCredential

ScramOf = Callable[[str], ScramCredential | None]
"""Returns a user's credential for one mechanism."""

# Compared with if the user does not exist, so that it takes as long as a wrong password.
_NOBODYS = ScramCredential(b"nobody", bytes(32), bytes(32), ITERATIONS_MIN)


class Passwords:
    """The passwords that a listener's mechanisms know.

    :param plain: begins an exchange of PLAIN; None if PLAIN is not enabled.
    :param scram: the enabled mechanisms of SCRAM.
    """

    def __init__(self, plain: Callable[[], ServerExchange] | None, scram: Mapping[str, ScramOf]) -> None:
        self._plain = plain
        self._scram = scram

    @property
    def are_there(self) -> bool:
        """Whether anybody can log in with a password."""
        return self._plain is not None or bool(self._scram)

    def matches(self, user: str, password: str) -> bool:
        """Whether this is the user's password for one of the mechanisms. Takes milliseconds."""
        if not user or not password or "\0" in user + password:
            return False
        if self._plain is not None and _is_plain(self._plain(), user, password):
            return True
        # Each mechanism is tried, whatever the others said: the time does not tell which ones the user has.
        found = [_is_scram(name, of_user(user), password) for name, of_user in self._scram.items()]
        return any(found)


def _is_plain(exchange: ServerExchange, user: str, password: str) -> bool:
    try:
        exchange.step(f"\0{user}\0{password}".encode())
    except LoginRefused:
        return False
    return exchange.identity is not None


def _is_scram(mechanism: str, known: ScramCredential | None, password: str) -> bool:
    credential = known or _NOBODYS
    if not ITERATIONS_MIN <= credential.iterations <= CLIENT_ITERATIONS_MAX:
        return False  # a log-in by SCRAM refuses fewer, too
    try:
        derived = ScramCredential.of_password(mechanism, password, credential.iterations, credential.salt)
    except UnicodeEncodeError:
        return False
    return hmac.compare_digest(derived.stored_key, credential.stored_key) and known is not None
