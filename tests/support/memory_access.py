"""ACLs, SCRAM users and quotas of a `MemoryCluster`, for the client onto it (`memory_clients.py`)."""

from collections.abc import Mapping, Sequence

from logyard.admin.acls.acls import Acl, AclFilter
from logyard.admin.configs.entities import Entity
from logyard.admin.quotas.quotas import Quota
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import ApiError, ErrorCode
from tests.support.memory_cluster import MemoryCluster


class MemoryAccess:
    """The part of `ports.DescribingClient` that is about rights. `cluster.authorizer` False: there is none."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def acls(self, chosen: AclFilter) -> list[Acl]:
        self._authorizer()
        return sorted(acl for acl in self._cluster.acls if chosen.accepts(acl))

    def create_acls(self, wanted: Sequence[Acl]) -> None:
        self._authorizer()
        self._cluster.acls |= set(wanted)

    def delete_acls(self, chosen: Sequence[AclFilter]) -> list[Acl]:
        self._authorizer()
        gone = {acl for acl in self._cluster.acls if any(one.accepts(acl) for one in chosen)}
        self._cluster.acls -= gone
        return sorted(gone)

    def scram_users(self, users: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (user, mechanism), one in self._cluster.users.items():
            if not users or user in users:
                found.setdefault(user, {})[mechanism] = one.iterations
        return found

    def alter_users(
        self, upsert: Sequence[NewPassword], delete: Mapping[str, Sequence[str]]
    ) -> dict[str, ApiError | None]:
        results: dict[str, ApiError | None] = {one.user: None for one in upsert}
        for one in upsert:
            self._cluster.users[one.user, one.mechanism] = one.check()
        for user, mechanisms in delete.items():
            lacking = [one for one in mechanisms if (user, one) not in self._cluster.users]
            problem = ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
            results[user] = problem if lacking else None
            for mechanism in mechanisms if not lacking else ():
                del self._cluster.users[user, mechanism]
        return results

    def quotas(self, entity: Entity) -> list[Quota]:
        return [
            Quota(Entity(types, names), dict(values))
            for (types, names), values in sorted(self._cluster.quotas.items())
            if types == entity.types and entity.names in (None, names) and values
        ]

    def alter_quotas(self, entity: Entity, values: Mapping[str, float], remove: Sequence[str] = ()) -> None:
        table = self._cluster.quotas.setdefault((entity.types, entity.names or ()), {})
        table.update(values)
        for key in remove:
            table.pop(key, None)

    def _authorizer(self) -> None:
        if not self._cluster.authorizer:
            raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
