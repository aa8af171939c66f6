"""A preview of a reassignment: what would move for given goals."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.admin.reassignment.disks import DiskTooFull
from logyard.admin.reassignment.planner import PlanImpossible
from logyard.admin.reassignment.unsized import SizesUnknown
from logyard.admin.settings import BadSettings
from logyard.plugins.logyard_ui.cluster.clusters import PLANNED_SIZES_S
from logyard.plugins.logyard_ui.cluster.plan_preview import BadPlanRequest, PlanRequest
from logyard.plugins.logyard_ui.dependencies import PLAN_S, REQUIRED_S, BrokerId, RequestedCluster, TopicName
from logyard.plugins.logyard_ui.responses.responses import required, respond

router = APIRouter()


@router.get("/plan")
async def plan(
    request: Request,
    cluster: RequestedCluster,
    topic: Annotated[list[TopicName], Query(max_length=200)] = [],  # noqa: B006 (FastAPI copies it)
    drain: Annotated[list[BrokerId], Query(max_length=200)] = [],  # noqa: B006
    replication_factor: Annotated[int | None, Query(ge=1, le=100)] = None,
    balance: bool = False,
    balance_disk: bool = False,
    throttle: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """A preview of what would move for these goals. Changes nothing."""
    state = required(await cluster.state(REQUIRED_S, topic, old_s=0))
    # As the operator does: who plans gives the replicas of brokers that are away to others.
    snapshot = required(await cluster.witnessed(state.snapshot, topic, drain, REQUIRED_S))
    moving, sizes = await asyncio.gather(
        cluster.running(REQUIRED_S), cluster.sizes(snapshot, REQUIRED_S, PLANNED_SIZES_S)
    )
    goals = PlanRequest(
        topics=tuple(sorted(set(topic))),
        drain=tuple(sorted(set(drain))),
        replication_factor=replication_factor,
        balance=balance,
        balance_disk=balance_disk,
        throttle=throttle or cluster.settings.throttle,
        limit=limit,
    )
    running = None if moving.problem is not None else moving.value
    preview = await cluster.plan(goals, snapshot, running, required(sizes), PLAN_S)
    if isinstance(preview.problem, (BadPlanRequest, BadSettings, DiskTooFull, PlanImpossible, SizesUnknown)):
        raise HTTPException(422, str(preview.problem))
    return respond(request, required(preview))
