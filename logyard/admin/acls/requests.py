"""Requests about ACLs (APIs 29 to 31); sent by `cluster/requests.py`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from logyard.admin.acls import acls
from logyard.admin.acls.acls import Acl, AclFilter, Resource
from logyard.admin.cluster import translation
from logyard.broker.znodes.acls import Named, Operation, PatternType, Permission, ResourceType
from logyard.login.meanings import meaning

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
            **_filter_fields(chosen),
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
                resource_type=int(ResourceType[one.resource.type]),
                resource_name=one.resource.name,
                resource_pattern_type=int(PatternType[one.resource.pattern]),
                principal=one.principal,
                host=one.host,
                operation=int(Operation[one.operation]),
                permission_type=int(Permission[one.permission]),
            )
            for one in wanted
        ]
        has_users = any(one.resource.type == acls.USER for one in wanted)
        return CreateAclsRequest(creations=creations, min_version=_LATEST if has_users else 0)

    for one, result in zip(wanted, sender.ask(make).results, strict=True):
        message = result.error_message or meaning(result.error_code)
        translation.refuse(result.error_code, f"{one.resource} {one}: {message}")


def delete(sender: AclSender, chosen: Sequence[AclFilter]) -> list[Acl]:
    """Remove what the filters accept; returns what was removed. Raises ApiError."""
    from kafka.protocol.admin import DeleteAclsRequest

    def make() -> Any:
        filters = [DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(one)) for one in chosen]
        has_users = any(one.type == acls.USER for one in chosen)
        return DeleteAclsRequest(filters=filters, min_version=_LATEST if has_users else 0)

    found = []
    for result in sender.ask(make).filter_results:
        translation.refuse(result.error_code, result.error_message)
        for one in result.matching_acls:
            translation.refuse(one.error_code, one.error_message)
            found.append(_acl(_resource(one.resource_type, one.resource_name, one.pattern_type), one))
    return sorted(found)


def _filter_fields(chosen: AclFilter) -> dict[str, Any]:
    """The fields of a filter, the same in both requests."""
    return {
        "resource_type_filter": int(ResourceType[chosen.type]),
        "resource_name_filter": chosen.name,
        "pattern_type_filter": int(PatternType[chosen.pattern]),
        "principal_filter": chosen.principal,
        "host_filter": chosen.host,
        "operation": int(Operation[chosen.operation]),
        "permission_type": int(Permission[chosen.permission]),
    }


def _resource(kind: int, name: str, pattern: int) -> Resource:
    return Resource(_name(ResourceType, kind), name, _name(PatternType, pattern))


def _acl(resource: Resource, one: Any) -> Acl:
    operation, permission = _name(Operation, one.operation), _name(Permission, one.permission_type)
    return Acl(resource, one.principal, operation, one.host, permission)


def _name(codes: type[Named], number: int) -> str:
    """Kafka's name of a number; UNKNOWN for one that came later."""
    try:
        return codes(number).name
    except ValueError:
        return "UNKNOWN"
