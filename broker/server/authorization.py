"""What handlers ask about a request's rights, by its row in rights_table.py (facts §18.5)."""

from collections import Counter
from collections.abc import Container, Iterable

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Request
from logyard.broker.server.rights import CLUSTER, Operation, Resource
from logyard.broker.server.rights_table import OPERATIONS, RIGHTS, Need
from logyard.broker.server.services import Services

# A decision takes as long as so many parts of an answer, and one that is written into the audit log as long as these.
DECISION_PARTS = 5
REFUSAL_PARTS = 50

NOT_ASKED = -(2**31)  # "no authorized operations were asked for"


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


EVERYTHING = _Everything()


def admit(services: Services, request: Request, message: object) -> None:
    """Check what the whole request needs. Raises ApiError: the refusal, or NOT_CONTROLLER where that comes first."""
    row = RIGHTS[request.api_key]
    if row.controller_first and not services.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
    for whole in row.whole:
        if whole.versions[0] <= request.api_version <= whole.versions[1]:
            name = getattr(message, whole.of) if whole.of else CLUSTER
            *others, last = whole.needs
            if not any(may(services, request, need, name, tells=False) for need in others):
                require(services, request, last, name)


def may(
    services: Services,
    request: Request,
    need: Need | None,
    name: str = CLUSTER,
    *,
    tells: bool = True,
    count: int = 1,
) -> bool:
    """Whether the request's principal has the right; without `tells` a refusal is not logged.

    `count`: how often the request names it.
    """
    assert need is not None
    count = count if tells else 0
    return services.rights.allow(request.session, need.operation, need.resource, name, request.api_key, count)


def require(services: Services, request: Request, need: Need | None, name: str = CLUSTER) -> None:
    """Raise the refusal as ApiError if the request's principal does not have the right."""
    assert need is not None
    if not may(services, request, need, name):
        raise ApiError(need.refusal)


def allowed(
    services: Services, request: Request, need: Need | None, names: Iterable[str], *, tells: bool = True
) -> Container[str]:
    """Return those of the names on which the request's principal has the right."""
    rights = services.rights
    if rights.is_open:
        return EVERYTHING
    assert need is not None
    operation, resource, _ = need
    session, api_key = request.session, request.api_key
    return {
        name
        for name, count in Counter(names).items()
        if rights.allow(session, operation, resource, name, api_key, count if tells else 0)
    }


def topics(services: Services, request: Request, names: Iterable[str]) -> Container[str]:
    """Return those of a few names that the request may use as its row says for topics."""
    if services.rights.is_open:
        return EVERYTHING
    return allowed(services, request, RIGHTS[request.api_key].topic, names)


async def allowed_of_many(
    services: Services,
    request: Request,
    pauses: Pauses,
    need: Need | None,
    names: Iterable[str],
    *,
    tells: bool = True,
) -> Container[str]:
    """Return what `allowed` does; others have their turns meanwhile: a client may name millions in one request."""
    if services.rights.is_open:
        return EVERYTHING
    found = set[str]()
    for name, count in (await pauses.counted(names)).items():
        if may(services, request, need, name, tells=tells, count=count):
            found.add(name)
            await pauses.after(DECISION_PARTS)
        else:
            await pauses.after(REFUSAL_PARTS if tells else DECISION_PARTS)
    return found


async def topics_of_many(services: Services, request: Request, pauses: Pauses, names: Iterable[str]) -> Container[str]:
    """Return those of the names that the request may use as its row says for topics."""
    return await allowed_of_many(services, request, pauses, RIGHTS[request.api_key].topic, names)


def seen(services: Services, request: Request, names: Iterable[str]) -> Container[str]:
    """Return those of a few names that an answer may tell of, by the request's row."""
    return allowed(services, request, RIGHTS[request.api_key].seen, names, tells=False)


async def seen_of_many(services: Services, request: Request, pauses: Pauses, names: Iterable[str]) -> Container[str]:
    """Return those of the names that an answer may tell of, by the request's row."""
    return await allowed_of_many(services, request, pauses, RIGHTS[request.api_key].seen, names, tells=False)


def operations(services: Services, request: Request, resource: Resource, name: str) -> int:
    """Return what the request's principal may do with the resource, as a bit field (KIP-430)."""
    may_do = (
        operation
        for operation in OPERATIONS[resource]
        if services.rights.allow(request.session, operation, resource, name, request.api_key, 0)
    )
    return sum(1 << operation for operation in may_do)


def cluster_operations(services: Services, request: Request) -> int:
    """Return what the request's principal may do with the cluster; 0 without the right to describe it."""
    found = operations(services, request, Resource.CLUSTER, CLUSTER)
    describes = services.rights.allow(request.session, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER, request.api_key)
    return found if describes else 0
