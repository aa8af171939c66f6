"""What a cluster, a topic, a group or a broker was doing in the last hours or weeks."""

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response
from sqlalchemy.exc import DBAPIError

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.dependencies import ConnId, RequestedCluster, services_of
from logyard.plugins.logyard_ui.history.sampler import is_kept
from logyard.plugins.logyard_ui.history.series import Subject, series
from logyard.plugins.logyard_ui.history.slots import slot_of
from logyard.plugins.logyard_ui.history.store import HistoryStore
from logyard.plugins.logyard_ui.responses.responses import respond_in_thread

HOURS_MAX = 35 * 24

router = APIRouter()


@router.get("/history")
async def history(
    request: Request,
    cluster: RequestedCluster,
    conn_id: ConnId = ClusterHook.default_conn_name,
    kind: Literal["cluster", "topic", "group", "broker"] = "cluster",
    name: Annotated[str, Query(max_length=500)] = "",
    hours: Annotated[int, Query(ge=1, le=HOURS_MAX)] = 1,
) -> Response:
    """Records and bytes a second, lag, bytes on disk, at most one value a minute."""
    if kind == "broker" and not (name.isascii() and name.isdecimal() and len(name) < 11):
        raise HTTPException(422, "name: a broker has a number")
    store, first = services_of(request).history, slot_of(time.time_ns() // 1_000_000) - hours * 60
    found = await asyncio.to_thread(read_history, store, conn_id, first, Subject(kind, name))
    return await respond_in_thread(request, lambda: found)


def read_history(store: HistoryStore, conn_id: str, first: int, subject: Subject) -> dict[str, Any]:
    """The series, and why there is none. Blocks: reads Airflow's database."""
    problem = None if is_kept() else "no history is kept: [logyard] page_history is off"
    try:
        samples = store.read(conn_id, first)
    except DBAPIError:
        samples, problem = [], problem or "no history is kept yet"
    points = [(slot * 60, sample) for slot, sample in samples]
    return series(points, subject) | {"problem": problem}
