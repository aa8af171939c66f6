"""The sections `acls`, `users` and `quotas` of topics as code: what they add. Pure, except `apply`.

    acls:
      - {topic: orders., pattern: prefixed, principal: "User:orders", operation: [Read, Write]}
      - {group: orders, principal: "User:orders", operation: Read}
    users:
      orders: {password_conn_id: orders_password, mechanisms: [SCRAM-SHA-512]}
    quotas:
      - {user: orders, producer_byte_rate: 10485760}

Guard rails as for topics: what is not named is left as it is. ACLs that are there and not listed stay; a user who can
log in by the named mechanisms keeps the password; limits that are not named stay. The file names the Airflow
connection that has a password, never the password.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.admin.acls import acls
from logyard.admin.acls.acls import Acl, AclFilter
from logyard.admin.ports import AccessClient
from logyard.admin.quotas import quotas
from logyard.admin.quotas.quotas import Quota
from logyard.admin.settings import BadSettings
from logyard.admin.users import users
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import LogyardError

_USER_KEYS = ("password_conn_id", "mechanisms", "iterations")
_ITERATIONS = 8192
SECTIONS = ("acls", "users", "quotas")


@dataclass(frozen=True, slots=True)
class WantedUser:
    """A user that logs in by SCRAM, with the password of an Airflow connection."""

    name: str
    password_conn_id: str
    mechanisms: tuple[str, ...]
    iterations: int = _ITERATIONS


@dataclass(frozen=True, slots=True)
class Access:
    """What a file says about rights; also what is missing of it in a cluster."""

    acls: tuple[Acl, ...] = ()
    users: tuple[WantedUser, ...] = ()
    quotas: tuple[Quota, ...] = ()

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Access":
        """Parse the sections. Raises BadSettings with the section and what is expected."""
        try:
            entries = _list("acls", content.get("acls"))
            found = [acl for n, one in enumerate(entries, 1) for acl in acls.parse(one, f"acls, entry {n}")]
            limits = [
                quotas.parse(one, f"quotas, entry {n}")
                for n, one in enumerate(_list("quotas", content.get("quotas")), 1)
            ]
        except BadSettings:
            raise
        except LogyardError as problem:
            raise BadSettings(str(problem)) from None
        wanted = tuple(_user(str(name), one) for name, one in _mapping("users", content.get("users")).items())
        return cls(tuple(dict.fromkeys(found)), wanted, tuple(limits))

    @property
    def is_empty(self) -> bool:
        return not (self.acls or self.users or self.quotas)

    def actions(self) -> set[str]:
        """Each change as a text that can be compared with another plan's."""
        return set(self.lines())

    def lines(self) -> list[str]:
        """Each change for people; no password is known here."""
        made = [f"+ ACL {acl.resource.type.lower()} {_name(acl)}: {acl}" for acl in self.acls]
        made += [
            f"+ user {one.name}: {', '.join(one.mechanisms)}, password of connection {one.password_conn_id}"
            for one in self.users
        ]
        made += [
            f"~ quota of {quotas.spoken(one.entity)}: {key}={value:,.12g}"
            for one in self.quotas
            for key, value in one.values.items()
        ]
        return made


def missing(wanted: Access, client: AccessClient) -> Access:
    """What the cluster lacks of the wanted. Raises ApiError (SECURITY_DISABLED), ClusterUnreachable."""
    there = set(client.acls(AclFilter())) if wanted.acls else set()
    known = client.scram_users([one.name for one in wanted.users]) if wanted.users else {}
    lacking = []
    for one in wanted.users:
        left = tuple(mechanism for mechanism in one.mechanisms if mechanism not in known.get(one.name, {}))
        if left:
            lacking.append(WantedUser(one.name, one.password_conn_id, left, one.iterations))
    limits = []
    for limit in wanted.quotas:
        now: Mapping[str, float] = next((found.values for found in client.quotas(limit.entity)), {})
        other = {key: value for key, value in limit.values.items() if now.get(key) != value}
        if other:
            limits.append(Quota(limit.entity, other))
    return Access(tuple(acl for acl in wanted.acls if acl not in there), tuple(lacking), tuple(limits))


def apply(client: AccessClient, lacking: Access, password_of: Callable[[str], str]) -> None:
    """Add what is missing; `password_of` gives the password of a connection. Raises ApiError, BadUser, BadSettings."""
    changes = [
        NewPassword(one.name, mechanism, password_of(one.password_conn_id), one.iterations).check()
        for one in lacking.users
        for mechanism in one.mechanisms
    ]
    if lacking.acls:
        client.create_acls(lacking.acls)
    if changes:
        for problem in client.alter_users(changes, {}).values():
            if problem is not None:
                raise problem
    for limit in lacking.quotas:
        client.alter_quotas(limit.entity, limit.values)


def _user(name: str, given: Any) -> WantedUser:
    entry = _mapping(f"user {name}", given)
    strange = [str(key) for key in entry if key not in _USER_KEYS]
    if strange:
        # Not its value: it may be a password.
        raise BadSettings(f"user {name}: {strange[0]!r} is not one of {', '.join(_USER_KEYS)}")
    if not entry.get("password_conn_id"):
        raise BadSettings(f"user {name}: password_conn_id, the connection that has the password, is expected")
    iterations = entry.get("iterations", _ITERATIONS)
    try:
        chosen = users.mechanisms(entry.get("mechanisms") or "")
        for mechanism in chosen:
            NewPassword(name, mechanism, "not known yet", int(iterations)).check()
    except (LogyardError, TypeError, ValueError, OverflowError) as problem:
        raise BadSettings(f"user {name}: {problem}") from None
    return WantedUser(name, str(entry["password_conn_id"]), chosen, int(iterations))


def _name(acl: Acl) -> str:
    return f"{acl.resource.name}*" if acl.resource.pattern == acls.PREFIXED else acl.resource.name


def _list(where: str, value: Any) -> Sequence[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, Mapping) for one in value):
        raise BadSettings(f"{where}: a list of mappings is expected")
    return list(value)


def _mapping(where: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadSettings(f"{where}: a mapping is expected, found {type(value).__name__}")
    return dict(value)
