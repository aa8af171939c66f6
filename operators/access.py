"""Who may do what, and how much of it: ACLs, users and quotas. All tasks are idempotent.

A password is that of an Airflow connection: it is no field of an operator, so it is never rendered, in an XCom or in a
log.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.acls import acls
from logyard.admin.acls.acls import Acl, AclFilter
from logyard.admin.quotas import quotas
from logyard.admin.quotas.quotas import Quota
from logyard.admin.settings import BadSettings
from logyard.admin.users import users
from logyard.admin.users.users import NewPassword
from logyard.operators import outcomes
from logyard.operators.airflow_names import BaseHook
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_integer, as_json, as_mapping, as_truth


class AclOperator(ClusterOperator):
    """A task on ACLs.

    :param acls: ACLs, a list of mappings or its JSON, each with one of `topic`, `group`, `transactional_id`, `user` or
        `cluster` (true); `pattern` (literal, prefixed); `principal` (`User:alice`), `operation` (`Read`) and `host`
        (`*`), each a text or a list; `permission` (allow, deny). (templated)
    """

    template_fields: Sequence[str] = ("acls", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"acls": "json"}

    def __init__(self, *, acls: Sequence[Mapping[str, Any]] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.acls = acls

    def entries(self, *, to_remove: bool = False) -> list[Acl]:
        """Raises BadSettings, BadAcl. `to_remove`: also what Kafka's tool would not add."""
        given = as_json("acls", self.acls) or []
        if not isinstance(given, (list, tuple)) or not all(isinstance(one, Mapping) for one in given):
            raise BadSettings("acls: a list of mappings is expected")
        rows = (acls.parse(one, f"ACL {number}", to_remove=to_remove) for number, one in enumerate(given, 1))
        found = [acl for row in rows for acl in row]
        return list(dict.fromkeys(found))


class CreateAclsOperator(AclOperator):
    """Add ACLs; those that are there already stay. Returns `created` and `existing`."""

    tells = staticmethod(outcomes.acls_created)

    def execute(self, context: Context) -> dict[str, Any]:
        wanted = self.entries()
        with self.hook.client() as client:
            there = {acl for one in wanted for acl in client.acls(AclFilter.exactly(one))}
            missing = [one for one in wanted if one not in there]
            if missing and not self.checks_only:
                client.create_acls(missing)
        return {
            "created": [acls.as_json(one) for one in missing],
            "existing": len(there),
            "dry_run": self.checks_only,
        }


class DeleteAclsOperator(AclOperator):
    """Remove exactly these ACLs; those that are not there are skipped. Returns `deleted`."""

    tells = staticmethod(outcomes.acls_deleted)

    def execute(self, context: Context) -> dict[str, Any]:
        chosen = [AclFilter.exactly(one) for one in self.entries(to_remove=True)]
        with self.hook.client() as client:
            if self.checks_only:
                gone = [acl for one in chosen for acl in client.acls(one)]
            else:
                gone = client.delete_acls(chosen) if chosen else []
        return {"deleted": [acls.as_json(one) for one in gone], "dry_run": self.checks_only}


class SetUserOperator(ClusterOperator):
    """Let a user log in by SCRAM: add the user, or with `change` set the password again.

    Brokers do not tell passwords: without `change`, a user that has the mechanisms already is left alone.

    :param user: the user's name. (templated)
    :param password_conn_id: the Airflow connection whose password the user gets. (templated)
    :param mechanisms: SCRAM-SHA-256, SCRAM-SHA-512, a list or both with a comma between them. (templated)
    :param iterations: of the hash, 4096 to 16384. (templated)
    :param change: set the password also if the user has one. (templated)
    :param wanted: false does nothing, for DAGs that add users only on request; `change` without a connection is refused
        then too. (templated)
    """

    tells = staticmethod(outcomes.user_set)
    template_fields = (
        "user",
        "password_conn_id",
        "mechanisms",
        "iterations",
        "change",
        "wanted",
        *ClusterOperator.template_fields,
    )

    def __init__(
        self,
        *,
        user: str,
        password_conn_id: str,
        mechanisms: str | Sequence[str] = users.DEFAULT_MECHANISM,
        iterations: int | str = 8192,
        change: bool | str = False,
        wanted: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.user = user
        self.password_conn_id = password_conn_id
        self.mechanisms = mechanisms
        self.iterations = iterations
        self.change = change
        self.wanted = wanted

    def execute(self, context: Context) -> dict[str, Any]:
        if not as_truth("wanted", self.wanted):
            if as_truth("change", self.change) and not self.password_conn_id:
                raise BadSettings("change: the connection whose password the user gets is not given")
            return {"user": self.user, "skipped": True}
        wanted = users.mechanisms(self.mechanisms)
        iterations = as_integer("iterations", self.iterations, 8192)
        with self.hook.client() as client:
            has = client.scram_users([self.user]).get(self.user, {})
            todo = [one for one in wanted if one not in has or as_truth("change", self.change)]
            if todo and not self.checks_only:
                password = password_of(self.password_conn_id)
                change = [NewPassword(self.user, one, password, iterations).check() for one in todo]
                problem = client.alter_users(change, {}).get(self.user)
                if problem is not None:
                    raise problem
        return {"user": self.user, "existed": bool(has), "set": todo, "dry_run": self.checks_only}


class DeleteUserOperator(ClusterOperator):
    """Remove a user's SCRAM credentials; succeeds if there are none. ACLs and quotas with the name stay.

    :param user: the user's name. (templated)
    :param wanted: false does nothing, for DAGs that remove users only on request. (templated)
    """

    tells = staticmethod(outcomes.user_deleted)
    template_fields = ("user", "wanted", *ClusterOperator.template_fields)

    def __init__(self, *, user: str, wanted: bool | str = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.user = user
        self.wanted = wanted

    def execute(self, context: Context) -> dict[str, Any]:
        if not as_truth("wanted", self.wanted):
            return {"user": self.user, "skipped": True}
        with self.hook.client() as client:
            has = sorted(client.scram_users([self.user]).get(self.user, {}))
            if has and not self.checks_only:
                problem = client.alter_users([], {self.user: has}).get(self.user)
                if problem is not None:
                    raise problem
        return {"user": self.user, "deleted": has, "dry_run": self.checks_only}


class SetQuotasOperator(ClusterOperator):
    """Set and remove quotas; what is not named stays, null removes. Returns `set` (what has changed) and `removed`.

    :param quotas: quotas, a list of mappings or its JSON, each with `user`, `client`, both, or `ip` ("" is the default)
        and limits: `producer_byte_rate`, `consumer_byte_rate`, `request_percentage`, `controller_mutation_rate`, of an
        ip `connection_creation_rate`; a limit that is null is removed. (templated)
    :param remove_others: remove the limits of these users, clients and ips that are not named. (templated)
    """

    tells = staticmethod(outcomes.quotas_set)
    template_fields = ("quotas", "remove_others", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"quotas": "json"}

    def __init__(
        self, *, quotas: Sequence[Mapping[str, Any]] | str, remove_others: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.quotas = quotas
        self.remove_others = remove_others

    def execute(self, context: Context) -> dict[str, Any]:
        given = as_json("quotas", self.quotas) or []
        if not isinstance(given, (list, tuple)):
            raise BadSettings(f"quotas: a list of mappings is expected, not {given!r}")
        mappings = [(as_mapping("quotas", one), f"quota {n}") for n, one in enumerate(given, 1)]
        wanted = [(quotas.parse(*one), quotas.unset(*one)) for one in mappings]
        changed, removed = [], []
        with self.hook.client() as client:
            for one, unset in wanted:
                there: Mapping[str, float] = next((found.values for found in client.quotas(one.entity)), {})
                values = {key: value for key, value in one.values.items() if there.get(key) != value}
                others = as_truth("remove_others", self.remove_others)
                extra = [key for key in there if key in unset or (others and key not in one.values)]
                if (values or extra) and not self.checks_only:
                    client.alter_quotas(one.entity, values, extra)
                changed += [_row(one, key, value) for key, value in values.items()]
                removed += [_row(one, key, there[key]) for key in extra]
        return {"set": changed, "removed": removed, "dry_run": self.checks_only}


def password_of(conn_id: str) -> str:
    """The password of an Airflow connection, which Airflow masks in logs. Raises BadSettings if it has none."""
    password = BaseHook.get_connection(conn_id).password
    if not password:
        raise BadSettings(f"connection {conn_id!r} has no password: it is the one that the user gets")
    return str(password)


def _row(quota: Quota, key: str, value: float) -> dict[str, Any]:
    return {"of": quotas.spoken(quota.entity), "key": key, "value": value}
