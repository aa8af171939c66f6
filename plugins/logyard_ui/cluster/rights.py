"""Who may do what on a topic: the ACLs that count for it, and the limits of the users that they name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logyard.admin.acls import acls
from logyard.admin.acls.acls import Acl, AclFilter
from logyard.admin.configs.entities import USERS, Entity
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import DescribingClient

SHOWN_MAX = 500
NEEDED = "the connection's user may not see ACLs: it needs Describe on the cluster"


@dataclass(frozen=True, slots=True)
class TopicRights:
    """`acls` None: the cluster has no authorizer, so everybody may do everything.

    `quotas`: of the users that ACLs name, those that have one; "" is every other user's.
    """

    acls: tuple[Acl, ...] | None
    quotas: Mapping[str, Mapping[str, float]]


def read_rights(client: DescribingClient, topic: str) -> TopicRights:
    """Ask for the ACLs that match the topic. Raises ApiError (CLUSTER_AUTHORIZATION_FAILED), ClusterUnreachable."""
    try:
        found = acls.on_topic(client.acls(AclFilter(acls.TOPIC, topic, acls.MATCH)), topic)
    except ApiError as refusal:
        if refusal.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise ApiError(refusal.code, NEEDED) from None
        if refusal.code is not ErrorCode.SECURITY_DISABLED:
            raise
        return TopicRights(None, {})
    named = {acl.principal.removeprefix("User:") for acl in found}
    limits = {quota.entity.name or "": quota.values for quota in client.quotas(Entity((USERS,)))}
    return TopicRights(tuple(found), {user: limits[user] for user in (*sorted(named), "") if user in limits})


def rights_json(rights: TopicRights) -> dict[str, Any]:
    """The part `rights` of the topic's document."""
    entries = [
        {
            "permission": acl.permission,
            "principal": acl.principal,
            "operation": acl.operation,
            "pattern": acl.resource.pattern,
            "name": acl.resource.name,
            "host": acl.host,
        }
        for acl in (rights.acls or ())[:SHOWN_MAX]
    ]
    return {
        "authorizer": rights.acls is not None,
        "acls_total": len(rights.acls or ()),
        "acls": entries,
        "quotas": [{"user": user, "limits": dict(values)} for user, values in sorted(rights.quotas.items())],
    }
