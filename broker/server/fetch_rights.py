"""Which topics a Fetch may read: asked once for each topic, and again when ACLs change while it waits (facts §18.5)."""

from collections.abc import Hashable
from typing import Protocol

from logyard.broker.errors import ErrorCode
from logyard.broker.replication.events import FetchedPartition, FetchParams
from logyard.broker.server import authorization
from logyard.broker.server.request import Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services

FETCH = RIGHTS[1]


class Reader(Protocol):
    """What a Fetch may read. `rights` is another value for other principals, hosts and ACLs."""

    @property
    def rights(self) -> Hashable: ...

    def __call__(self, topic: str) -> bool: ...

    def still(self, answers: list[FetchedPartition]) -> list[FetchedPartition]:
        """Return the answers of a Fetch that waited, without what it may no longer read."""
        ...


class _Everything:
    """Reads everything: there is no authorizer."""

    rights = None

    def __call__(self, topic: str) -> bool:
        return True

    def still(self, answers: list[FetchedPartition]) -> list[FetchedPartition]:
        return answers


EVERYTHING = _Everything()


class _Consumer:
    """A client, which needs the right to read each topic."""

    __slots__ = ("_known", "_request", "_services", "_version", "rights")

    def __init__(self, services: Services, request: Request) -> None:
        session = request.session
        self._services = services
        self._request = request
        self._version = services.rights.version
        self._known: dict[str, bool] = {}
        self.rights = (self._version, session.principal, session.client_host)

    def __call__(self, topic: str) -> bool:
        version = self._services.rights.version
        if version != self._version:
            self._known = {}
            self._version = version
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = authorization.may(self._services, self._request, FETCH.topic, topic)
        return known

    def still(self, answers: list[FetchedPartition]) -> list[FetchedPartition]:
        if self._version == self._services.rights.version:
            return answers
        return [
            answer
            if answer.error is not ErrorCode.NONE or self(answer.tp.topic)
            else FetchedPartition(answer.tp, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id=answer.topic_id)
            for answer in answers
        ]


class _Follower:
    """A broker, which needs the right to act as one and no other."""

    __slots__ = ("_request", "_services", "rights")

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._request = request
        self.rights = (services.rights.version, request.session.principal, request.session.client_host)

    def __call__(self, topic: str) -> bool:
        return self._request.session.is_broker

    def still(self, answers: list[FetchedPartition]) -> list[FetchedPartition]:
        return answers


def reader_of(services: Services, request: Request, params: FetchParams) -> Reader:
    """Return what the request may read, and note in its session whether it comes from a broker."""
    if not params.from_follower:
        return _Consumer(services, request)
    request.session.is_broker = authorization.may(services, request, FETCH.cluster)
    return _Follower(services, request)
