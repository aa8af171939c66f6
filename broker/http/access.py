"""Asks before a route does anything: who sends the request, and whether that one may (rights_table.py).

Rule 1: nobody gets past who has not logged in; a body is read only after that, and a body that decides about rights has
        SMALL_BODY_MAX bytes at most.
Rule 2: a run's token is held against run, topic and purpose first, then its owner against the ACLs, at each request.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from logyard.broker.http.bodies import drop_rest, read_body
from logyard.broker.http.callers import Caller, Decide, Identities
from logyard.broker.http.rights_table import CLUSTER, OF_PURPOSE, ROWS, Route, Row, TopicFrom
from logyard.broker.http.run_tokens import RunToken
from logyard.broker.leases.book import LeaseBook, LeaseError, Purpose
from logyard.broker.znodes.acls import Operation, ResourceType

SMALL_BODY_MAX = 64 * 1024

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about: a topic, for a purpose, in a run; what it does not name is None."""

    topic: str
    purpose: Purpose | None = None
    run_id: str | None = None


class Access:
    """The gate of all routes. `open_routes` need no log-in, besides those whose row says so.

    `in_use` is told of each use of a run's token on a lease.
    """

    def __init__(
        self,
        identities: Identities,
        decide: Decide,
        book: LeaseBook,
        *,
        open_routes: frozenset[Route],
        in_use: Callable[[RunToken], Awaitable[None]] | None = None,
    ) -> None:
        self._identities = identities
        self._decide = decide
        self._book = book
        self._open_routes = open_routes
        self._in_use = in_use

    def guarded(self, route: Route, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint behind its row. Raises KeyError if the table has none."""
        row = ROWS[route]
        if row.is_open or route in self._open_routes:
            return endpoint

        async def guard(request: Request) -> Response:
            try:
                caller = await self._identities.identify(request)
            except LeaseError:
                await drop_rest(request)
                raise
            request.state.caller = caller
            if not caller.owns:
                await self._check(caller, route, row, request)
            return await endpoint(request)

        return guard

    def sees(self, request: Request, topic: str) -> bool:
        """Whether an answer may tell the caller of this topic."""
        caller = caller_of(request)
        if caller.owns:
            return True
        if caller.token is not None and caller.token.topic != topic:
            return False
        return self._may(caller, Operation.DESCRIBE, ResourceType.TOPIC, topic, "", tells=False)

    def sees_cluster(self, request: Request) -> bool:
        """Whether an answer may tell the caller of what belongs to no topic."""
        caller = caller_of(request)
        if caller.owns:
            return True
        if caller.token is not None:
            return False
        return self._may(caller, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER, "", tells=False)

    async def _check(self, caller: Caller, route: Route, row: Row, request: Request) -> None:
        """Raise LeaseError (`forbidden`, `unknown_lease`, `invalid_request`) if the caller may not do this."""
        if caller.token is not None and not row.tokens:
            raise forbidden(f"a run's token is not for {route}: log in as a user")
        if row.cluster is not None:
            self._require(caller, row.cluster, ResourceType.CLUSTER, CLUSTER, route)
        if row.topic is None:
            return
        target = await self._target(row.topic, request)
        self._hold_token(caller, row, target)
        needed = row.all_of or OF_PURPOSE[target.purpose or Purpose.COMPACT]
        for operation in needed:
            self._require(caller, operation, ResourceType.TOPIC, target.topic, route)
        if self._in_use is not None and caller.token is not None and target.run_id is not None:
            await self._in_use(caller.token)

    async def _target(self, named_by: TopicFrom, request: Request) -> Target:
        if named_by is TopicFrom.PATH:
            return Target(request.path_params["topic"])
        if named_by is TopicFrom.LEASE:
            lease = self._book.find(request.path_params["lease_id"])
            return Target(lease.tp.topic, lease.purpose, lease.run_id)
        body = await read_body(request, SMALL_BODY_MAX)
        topic, purpose, run_id = body.get("topic"), body.get("purpose"), body.get("run_id")
        if not isinstance(topic, str) or not isinstance(run_id, str):
            raise LeaseError("invalid_request", 400, "topic and run_id: texts are expected")
        if not isinstance(purpose, str) or purpose not in {known.value for known in Purpose}:
            raise LeaseError("invalid_request", 400, "purpose: compact, audit or export is expected")
        return Target(topic, Purpose(purpose), run_id)

    def _hold_token(self, caller: Caller, row: Row, target: Target) -> None:
        """Raise `forbidden` if the caller has a run's token that is for something else."""
        token = caller.token
        if token is None:
            return
        if token.topic != target.topic:
            raise forbidden(f"this token is for the topic {token.topic}, not {target.topic}")
        if target.run_id is not None and not token.is_for_run(target.run_id):
            raise forbidden("this token is for another run")
        wrong = target.purpose is not None and token.purpose is not target.purpose
        if wrong or token.purpose not in row.tokens:
            raise forbidden(f"this token is for the purpose {token.purpose.value} only")

    def _require(self, caller: Caller, operation: Operation, kind: ResourceType, name: str, route: Route) -> None:
        if not self._may(caller, operation, kind, name, str(route), tells=True):
            on = "the cluster" if kind is ResourceType.CLUSTER else f"the topic {name}"
            raise forbidden(f"{caller.principal} needs {operation} on {on}: an ACL has to allow it")

    def _may(
        self, caller: Caller, operation: Operation, kind: ResourceType, name: str, route: str, *, tells: bool
    ) -> bool:
        return self._decide(caller, operation, kind, name, route, tells=tells)


def caller_of(request: Request) -> Caller:
    """Return who has sent a request that has passed the gate."""
    caller: Caller = request.state.caller
    return caller


def forbidden(message: str) -> LeaseError:
    """Return the refusal of what a known caller may not do."""
    return LeaseError("forbidden", 403, message)


def everything(*_: Any, **__: Any) -> bool:
    """Decide as a broker without an authorizer does."""
    return True
