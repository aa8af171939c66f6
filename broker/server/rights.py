"""The rights that requests need, and who decides on them (facts §18.4, §18.5)."""

from typing import Protocol

from logyard.broker.server.request import Session
from logyard.broker.znodes.acls import Operation
from logyard.broker.znodes.acls import ResourceType as Resource

__all__ = ["CLUSTER", "EverythingAllowed", "Operation", "Resource", "Rights"]

CLUSTER = "kafka-cluster"
"""The name of the only resource of type Cluster."""


class Rights(Protocol):
    """An authorizer. If `is_open`, nothing is refused, and hot paths do not ask.

    `version` changes whenever an answer may have changed: caches of what somebody may see go by it.
    """

    @property
    def is_open(self) -> bool: ...

    @property
    def version(self) -> int: ...

    @property
    def logs_allowed(self) -> bool:
        """Whether what is allowed is logged too: then each request has to ask."""
        ...

    def allow(
        self,
        session: Session,
        operation: Operation,
        resource: Resource,
        name: str,
        api_key: int | str = -1,
        count: int = 1,
    ) -> bool:
        """Whether the session's principal may do the operation on the resource of that name.

        `api_key` is the request's (of HTTP: its route), and `count` how often it names the resource, for the audit log;
        with a count of 0 nothing is logged: the request does not ask for the resource, but for what the principal may
        see.
        """
        ...

    def allow_any(self, session: Session, operation: Operation, resource: Resource, api_key: int = -1) -> bool:
        """Whether the session's principal may do the operation on at least one resource of the type."""
        ...


class EverythingAllowed:
    """The rights if no authorizer is configured."""

    is_open = True
    version = 0
    logs_allowed = False

    def allow(
        self,
        session: Session,
        operation: Operation,
        resource: Resource,
        name: str,
        api_key: int | str = -1,
        count: int = 1,
    ) -> bool:
        return True

    def allow_any(self, session: Session, operation: Operation, resource: Resource, api_key: int = -1) -> bool:
        return True
