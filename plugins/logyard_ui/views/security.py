"""Who may do what on a whole cluster: its ACLs, its users, its limits."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from logyard.plugins.logyard_ui.cluster.security import acls_json, quotas_json, users_json
from logyard.plugins.logyard_ui.dependencies import OPTIONAL_S, REQUIRED_S, RequestedCluster
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

Wanted = Annotated[str, Query(max_length=250)]

router = APIRouter()


@router.get("/acls")
async def acls(request: Request, cluster: RequestedCluster, q: Wanted = "") -> Response:
    """The cluster's ACLs, or why they are not told."""
    cached = await cluster.acls(REQUIRED_S)
    told = required(cached)
    return await respond_in_thread(request, lambda: acls_json(told, q) | {"taken_at_ms": cached.taken_ms})


@router.get("/users")
async def users(request: Request, cluster: RequestedCluster, q: Wanted = "") -> Response:
    """Users with SCRAM credentials, and those that ACLs or limits name."""
    parts = OptionalParts()
    cached, cached_acls, cached_quotas = await asyncio.gather(
        cluster.users(REQUIRED_S), cluster.acls(OPTIONAL_S), cluster.quotas(OPTIONAL_S)
    )
    told = required(cached)
    rights, limits = parts.take("acls", cached_acls), parts.take("quotas", cached_quotas)
    rest = {"taken_at_ms": cached.taken_ms} | parts.as_json()
    return await respond_in_thread(request, lambda: users_json(told, rights, limits, q) | rest)


@router.get("/quotas")
async def quotas(request: Request, cluster: RequestedCluster, q: Wanted = "") -> Response:
    """The limits of users, clients and addresses."""
    cached = await cluster.quotas(REQUIRED_S)
    told = required(cached)
    return await respond_in_thread(request, lambda: quotas_json(told, q) | {"taken_at_ms": cached.taken_ms})
