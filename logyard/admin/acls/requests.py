"""Requests about ACLs (APIs 29 to 31); sent by `cluster/requests.py`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from logyard.admin.acls import acls
from logyard.admin.acls.acls import Acl, AclFilter, Resource
from logyard.admin.cluster import translation

# Kafka's numbers (facts §18).
_TYPES = {
    acls.ANY: 1,
    acls.TOPIC: 2,
    acls.GROUP: 3,
    acls.CLUSTER: 4,
    acls.TRANSACTIONAL_ID: 5,
    acls.DELEGATION_TOKEN: 6,
    acls.USER: 7,
}
_PATTERNS = {acls.ANY: 1, acls.MATCH: 2, acls.LITERAL: 3, acls.PREFIXED: 4}
_PERMISSIONS = {acls.ANY: 1, acls.DENY: 2, acls.ALLOW: 3}
_OPERATIONS = {
    name: number
    for number, name in enumerate(
        (
            acls.ANY,
            "ALL",
            "READ",
            "WRITE",
            "CREATE",
            "DELETE",
            "ALTER",
            "DESCRIBE",
            "CLUSTER_ACTION",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "IDEMPOTENT_WRITE",
            "CREATE_TOKENS",
            "DESCRIBE_TOKENS",
        ),
        1,
    )
}
_LATEST = 3  # the version that has users as resources


class AclSender(Protocol):
    """The part of `requests.ClusterRequests` that is needed."""

    def ask(self, make: Callable[[], Any], node: int | None = None) -> Any: ...


def describe(sender: AclSender, chosen: AclFilter) -> list[Acl]:
    """The ACLs that the filter accepts, by resource.

    Raises ApiError (SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED), ClusterUnreachable.
    """
    from kafka.protocol.admin import DescribeAclsRequest

    answer = sender.ask(
        lambda: DescribeAclsRequest(
            resource_type_filter=_TYPES[chosen.type],
            resource_name_filter=chosen.name,
            pattern_type_filter=_PATTERNS[chosen.pattern],
            principal_filter=chosen.principal,
            host_filter=chosen.host,
            operation=_OPERATIONS[chosen.operation],
            permission_type=_PERMISSIONS[chosen.permission],
            min_version=_LATEST if chosen.type == acls.USER else 0,
        )
    )
    translation.refuse(answer.error_code, answer.error_message)
    return sorted(
        _acl(_resource(found.resource_type, found.resource_name, found.pattern_type), one)
        for found in answer.resources
        for one in found.acls
    )


def create(sender: AclSender, wanted: Sequence[Acl]) -> None:
    """Add ACLs; those that are there already stay. Raises ApiError with the first that is refused."""
    from kafka.protocol.admin import CreateAclsRequest

    def make() -> Any:
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=_TYPES[one.resource.type],
                resource_name=one.resource.name,
                resource_pattern_type=_PATTERNS[one.resource.pattern],
                principal=one.principal,
                host=one.host,
                operation=_OPERATIONS[one.operation],
                permission_type=_PERMISSIONS[one.permission],
            )
            for one in wanted
        ]
        has_users = any(one.resource.type == acls.USER for one in wanted)
        return CreateAclsRequest(creations=creations, min_version=_LATEST if has_users else 0)

    for one, result in zip(wanted, sender.ask(make).results, strict=True):
        message = result.error_message or translation.code(result.error_code).name
        translation.refuse(result.error_code, f"{one.resource} {one}: {message}")


def delete(sender: AclSender, chosen: Sequence[AclFilter]) -> list[Acl]:
    """Remove what the filters accept; returns what was removed. Raises ApiError."""
    from kafka.protocol.admin import DeleteAclsRequest

    def make() -> Any:
        filters = [
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=_TYPES[one.type],
                resource_name_filter=one.name,
                pattern_type_filter=_PATTERNS[one.pattern],
                principal_filter=one.principal,
                host_filter=one.host,
                operation=_OPERATIONS[one.operation],
                permission_type=_PERMISSIONS[one.permission],
            )
            for one in chosen
        ]
        has_users = any(one.type == acls.USER for one in chosen)
        return DeleteAclsRequest(filters=filters, min_version=_LATEST if has_users else 0)

    found = []
    for result in sender.ask(make).filter_results:
        translation.refuse(result.error_code, result.error_message)
        for one in result.matching_acls:
            translation.refuse(one.error_code, one.error_message)
            found.append(_acl(_resource(one.resource_type, one.resource_name, one.pattern_type), one))
    return sorted(found)


def _resource(kind: int, name: str, pattern: int) -> Resource:
    return Resource(_name(_TYPES, kind), name, _name(_PATTERNS, pattern))


def _acl(resource: Resource, one: Any) -> Acl:
    operation, permission = _name(_OPERATIONS, one.operation), _name(_PERMISSIONS, one.permission_type)
    return Acl(resource, one.principal, operation, one.host, permission)


def _name(names: dict[str, int], number: int) -> str:
    """Kafka's name of a number; UNKNOWN for one that came later."""
    return next((name for name, known in names.items() if known == number), "UNKNOWN")
