"""Who may do what: the question that handlers ask before they do it. There is no authorizer yet: everyone may."""

from enum import Enum
from typing import Protocol

from logyard.broker.server.request import Session


class Operation(Enum):
    """What is done, by Kafka's names (facts §18.4)."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"


class Resource(Enum):
    """To what kind of thing."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"


CLUSTER = "kafka-cluster"
"""The name of the one resource of its kind."""


class Rights(Protocol):
    """An authorizer."""

    def allow(self, session: Session, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the session's principal may do that."""
        ...


class EverythingAllowed:
    """Rights where no authorizer is configured."""

    def allow(self, session: Session, operation: Operation, resource: Resource, name: str) -> bool:
        return True
