"""Who sends an HTTP request, and what answers that."""

from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from logyard.broker.http.run_tokens import RunToken
from logyard.broker.znodes.acls import Operation, ResourceType

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal (`User:name`), the address as Java writes it, and the run token if that is how it came in.

    `owns`: it has the file with the token of a plain HTTP side, and may do everything.
    """

    principal: str
    host: str
    token: RunToken | None = None
    owns: bool = False


class Identities(Protocol):
    """Says who sends a request, by its connection and headers; a body is not read."""

    async def identify(self, request: Request) -> Caller:
        """Raise LeaseError `unauthorized` if nobody known does."""
        ...


class Decide(Protocol):
    """An authorizer: whether a caller may do the operation on the resource; with `tells` it is in the audit log."""

    def __call__(
        self, caller: Caller, operation: Operation, resource: ResourceType, name: str, route: str, *, tells: bool
    ) -> bool: ...
