"""Who may do what on a whole cluster, who logs in by SCRAM, and who is limited; and why brokers do not tell it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Generic, TypeVar

from logyard.admin.acls.acls import Acl, AclFilter
from logyard.admin.configs.entities import CLIENTS, IPS, USERS, Entity
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import DescribingClient
from logyard.admin.quotas.quotas import Quota

T = TypeVar("T")

SHOWN_MAX = 2_000
NO_AUTHORIZER = "Everybody may do everything: the cluster has no authorizer, and so no ACLs."
_PRINCIPAL, _EVERYBODY = "User:", "*"
_LIMITED = ((USERS,), (CLIENTS,), (USERS, CLIENTS), (IPS,))
_FIELDS = {USERS: "user", CLIENTS: "client", IPS: "ip"}

Users = Mapping[str, Mapping[str, int]]
"""User → mechanism → iterations."""


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """`refused`: why brokers do not tell it, as a sentence; then `value` is empty."""

    value: T
    refused: str | None = None


def read_acls(client: DescribingClient) -> Told[tuple[Acl, ...]]:
    """Every ACL, denials first. Raises ClusterUnreachable, ApiError."""

    def read() -> tuple[Acl, ...]:
        order = sorted(client.acls(AclFilter()), key=lambda acl: (acl.permission != "DENY", acl.principal, acl))
        return tuple(order)

    return told_or_why(read, (), "ACLs", "Describe")


def read_users(client: DescribingClient) -> Told[Users]:
    """Every user with SCRAM credentials. Raises ClusterUnreachable, ApiError."""
    return told_or_why(client.scram_users, {}, "who logs in by SCRAM", "Describe")


def read_quotas(client: DescribingClient) -> Told[tuple[Quota, ...]]:
    """Every limit. Raises ClusterUnreachable, ApiError."""

    def read() -> tuple[Quota, ...]:
        return tuple(quota for types in _LIMITED for quota in client.quotas(Entity(types)))

    return told_or_why(read, (), "limits", "DescribeConfigs")


def told_or_why(read: Callable[[], T], nothing: T, what: str, right: str) -> Told[T]:
    """What `read` finds; `right`: what the connection's user needs on the cluster for it. Raises ApiError."""
    try:
        return Told(read())
    except ApiError as refusal:
        if refusal.code is ErrorCode.SECURITY_DISABLED:
            return Told(nothing, NO_AUTHORIZER)
        if refusal.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return Told(nothing, f"The connection's user may not see {what}: it needs {right} on the cluster.")
        if refusal.code is ErrorCode.UNSUPPORTED_VERSION:
            return Told(nothing, f"The brokers are too old to tell {what}.")
        raise


def acls_json(told: Told[tuple[Acl, ...]], wanted: str) -> dict[str, Any]:
    """The ACLs of which some part has every word of `wanted`, in any case of letters."""
    rows = [
        {
            "permission": acl.permission,
            "principal": acl.principal,
            "operation": acl.operation,
            "type": acl.resource.type,
            "pattern": acl.resource.pattern,
            "name": acl.resource.name,
            "host": acl.host,
        }
        for acl in told.value
    ]
    return _listed("acls", rows, wanted, told.refused)


def users_json(
    told: Told[Users], rights: Told[tuple[Acl, ...]] | None, quotas: Told[tuple[Quota, ...]] | None, wanted: str
) -> dict[str, Any]:
    """Users with SCRAM credentials, and those that only ACLs or limits name (who log in otherwise).

    `acls` (their number) and `limits` of a user are None where they are not known.
    """
    principals = [acl.principal for acl in rights.value] if rights is not None else []
    counts = Counter(one.removeprefix(_PRINCIPAL) for one in principals if one.startswith(_PRINCIPAL))
    per_user = [one for one in quotas.value if one.entity.types == (USERS,)] if quotas is not None else []
    limits = {one.entity.name or "": one.values for one in per_user}
    rows = [
        {
            "user": user,
            "mechanisms": dict(told.value.get(user, {})),
            "acls": None if rights is None or rights.refused else counts.get(user, 0),
            "limits": None if quotas is None or quotas.refused else _limits(limits.get(user, {})),
        }
        for user in sorted({*told.value, *counts, *limits} - {_EVERYBODY, ""})
    ]
    return _listed("users", rows, wanted, told.refused)


def quotas_json(told: Told[tuple[Quota, ...]], wanted: str) -> dict[str, Any]:
    """Limits by what they are of: a name is "" for the default of its kind, None where it does not matter."""
    nobody = dict.fromkeys(_FIELDS.values())
    rows = [
        {
            **nobody,
            **{_FIELDS[kind]: name for kind, name in zip(quota.entity.types, quota.entity.names or (), strict=True)},
            "limits": _limits(quota.values),
        }
        for quota in told.value
    ]
    return _listed("quotas", rows, wanted, told.refused)


def _limits(values: Mapping[str, float]) -> dict[str, float]:
    """Kafka takes Infinity for a limit, which limits nothing; JSON has no such number."""
    return {key: value for key, value in values.items() if isfinite(value)}


def _listed(name: str, rows: list[dict[str, Any]], wanted: str, refused: str | None) -> dict[str, Any]:
    words = wanted.lower().split()
    found = [row for row in rows if _holds(row, words)] if words else rows
    return {"refused": refused, "total": len(rows), "found": len(found), name: found[:SHOWN_MAX]}


def _holds(row: Mapping[str, Any], words: Iterable[str]) -> bool:
    text = " ".join(_texts(row)).lower()
    return all(word in text for word in words)


def _texts(row: Mapping[str, Any]) -> Iterable[str]:
    """Names and values; DESCRIBE_CONFIGS also as people write it, DescribeConfigs."""
    for value in row.values():
        if isinstance(value, Mapping):
            yield from value
        elif isinstance(value, str):
            yield value
            if "_" in value:
                yield value.replace("_", "")
