"""Users with SCRAM credentials: what is changed, and kafka-configs' words about them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logyard.broker.errors import LogyardError
from logyard.broker.znodes.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS

SCRAM = tuple(MECHANISMS.values())
DEFAULT_MECHANISM = "SCRAM-SHA-512"


class BadUser(LogyardError):
    """A user or a credential that cannot be; the text never holds the password."""


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A credential to set: the password goes to the brokers salted and hashed."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    iterations: int = ITERATIONS_MIN

    def check(self) -> "NewPassword":
        """Raises BadUser for what brokers refuse (facts §18)."""
        if not self.user:
            raise BadUser("a user's name is expected")
        if self.mechanism not in SCRAM:
            raise BadUser(f"mechanism {self.mechanism!r}: {' or '.join(SCRAM)} is expected")
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            raise BadUser(f"iterations {self.iterations}: between {ITERATIONS_MIN} and {ITERATIONS_MAX} is expected")
        if not self.password:
            raise BadUser(f"the password of user {self.user!r} is empty")
        return self


def mechanisms(text: str | Sequence[str]) -> tuple[str, ...]:
    """`SCRAM-SHA-256,SCRAM-SHA-512` or a list of them. Raises BadUser."""
    parts = text.split(",") if isinstance(text, str) else text
    if not (isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts)):
        raise BadUser(f"mechanisms {text!r}: {' or '.join(SCRAM)} is expected, or a list of them")
    found = tuple(dict.fromkeys(part.strip().upper() for part in parts if part.strip()))
    for one in found:
        if one not in SCRAM:
            raise BadUser(f"mechanism {one!r}: {' or '.join(SCRAM)} is expected")
    return found or (DEFAULT_MECHANISM,)


def lines(users: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each user: mechanisms and iterations, which are all that brokers tell."""
    return [
        f"SCRAM credential configs for user-principal '{user}' are "
        + ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in sorted(found.items()))
        for user, found in sorted(users.items())
    ]


def updated(user: str) -> str:
    return f"Completed updating config for user {user}."
