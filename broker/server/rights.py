"""The rights that handlers check before they act (facts §18.5). There is no authorizer yet: everything is allowed."""

from enum import Enum
from typing import Protocol

from logyard.broker.server.request import Session


class Operation(Enum):
    """The operations, with Kafka's names (facts §18.4)."""

    READ = "Read"
    WRITE = "Write"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"


class Resource(Enum):
    """The types of resources, with Kafka's names."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"


CLUSTER = "kafka-cluster"
"""The name of the only resource of type Cluster."""


class Rights(Protocol):
    """An authorizer."""

    def allow(self, session: Session, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the session's principal may do the operation on the resource of that name."""
        ...


class EverythingAllowed:
    """The rights if no authorizer is configured."""

    def allow(self, session: Session, operation: Operation, resource: Resource, name: str) -> bool:
        return True
