"""What a SASL mechanism is: an exchange of tokens that ends with an identity, or with a refusal (facts §18.1)."""

from dataclasses import dataclass
from typing import Protocol

from logyard.broker.errors import LogyardError

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
MECHANISMS = (GSSAPI, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class LoginRefused(LogyardError):
    """A log-in is refused. The text of the exception is for the broker's log, and has no secret.

    :param told: what the client is told; None: a general text, because the reason would tell it too much.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


@dataclass(frozen=True, slots=True)
class Identity:
    """Who has logged in: the user's name (without type), and when its credential ends (wall clock; None: never)."""

    name: str
    expires_ms: int | None = None
    is_token: bool = False


class ServerExchange(Protocol):
    """The server's side of one log-in. `step` is called with each token of the client until `identity` is there."""

    @property
    def is_slow(self) -> bool:
        """Whether a step may take milliseconds or wait: it has to run in a thread."""
        ...

    @property
    def claimed(self) -> str | None:
        """The name that the client has given so far, proved or not: for the log."""
        ...

    @property
    def identity(self) -> Identity | None:
        """Who has logged in; None until then."""
        ...

    def proves(self, token: bytes) -> str | None:
        """Return the user whose password this token is to prove; None if it proves none."""
        ...

    def step(self, token: bytes) -> bytes:
        """Take a token of the client and return the answer to it. Raises LoginRefused."""
        ...


class ClientExchange(Protocol):
    """The client's side of one log-in."""

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Take a token of the server; return the next one, None if none is left. Raises LoginRefused."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the server has proved all that the mechanism asks of it."""
        ...
