"""The codes of ACLs in requests as values (facts §18.4). A code that is not known becomes UNKNOWN."""

from typing import Any, TypeVar

from logyard.broker.security.acls.filters import AclFilter
from logyard.broker.server.request import Unanswerable
from logyard.broker.znodes.acls import Named, Operation, PatternType, Permission, ResourceType

SECURITY_DISABLED = "No Authorizer is configured."

N = TypeVar("N", bound=Named)


def _known(kind: type[N], code: int) -> N:
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def resource_type_of(code: int) -> ResourceType:
    return _known(ResourceType, code)


def pattern_type_of(code: int) -> PatternType:
    return _known(PatternType, code)


def operation_of(code: int) -> Operation:
    return _known(Operation, code)


def permission_of(code: int) -> Permission:
    return _known(Permission, code)


def refuse_unknown(*codes: int) -> None:
    """Raise Unanswerable if a code is 0, UNKNOWN: Kafka closes the connection of a client that sends it."""
    if 0 in codes:
        raise Unanswerable("an ACL with an UNKNOWN element (code 0)")


def filter_of(asked: Any) -> AclFilter:
    """Translate a filter of DescribeAcls or DeleteAcls. Raises Unanswerable."""
    refuse_unknown(asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    return AclFilter(
        resource_type_of(asked.resource_type_filter),
        asked.resource_name_filter,
        pattern_type_of(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        operation_of(asked.operation),
        permission_of(asked.permission_type),
    )
