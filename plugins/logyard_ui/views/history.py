"""What a cluster, a topic, a group or a broker was doing in the last hours or weeks."""

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response
from sqlalchemy.exc import DBAPIError

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.dependencies import REQUIRED_S, ConnId, RequestedCluster, services_of
from logyard.plugins.logyard_ui.history.disk_forecast import DiskForecast, forecasts
from logyard.plugins.logyard_ui.history.sample import Only
from logyard.plugins.logyard_ui.history.sampler import is_kept
from logyard.plugins.logyard_ui.history.series import Subject, series
from logyard.plugins.logyard_ui.history.slots import slot_of
from logyard.plugins.logyard_ui.history.store import HistoryStore
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

HOURS_MAX = 35 * 24
# The days that a forecast looks back on: what was a month ago says little of what comes.
FORECAST_HOURS, FORECAST_WIDTH = 7 * 24, 30
# Of a plot: more would be drawn over each other, and each is a sample that is unpacked.
POINTS_MAX = 360

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
    store, now = services_of(request).history, slot_now()
    cached = await cluster.kept(
        "history",
        lambda: read_history(store, conn_id, now, hours, Subject(kind, name)),
        REQUIRED_S,
        (kind, name, hours),
    )
    found = required(cached)
    return await respond_in_thread(request, lambda: found)


def slot_now() -> int:
    return slot_of(time.time_ns() // 1_000_000)


def read_history(store: HistoryStore, conn_id: str, now: int, hours: int, subject: Subject) -> dict[str, Any]:
    """The series up to that slot, of POINTS_MAX points or a few more, and why there is none. Blocks: reads Airflow's
    database."""
    problem = None if is_kept() else "no history is kept: [logyard] page_history is off"
    width = max(1, hours * 60 // POINTS_MAX)
    samples = store.samples(conn_id, now - hours * 60, width, subject.only)
    try:
        found = series(((slot * 60, sample) for slot, sample in samples), subject, now * 60, width * 60)
    except DBAPIError:
        found, problem = series((), subject, now * 60), problem or "no history is kept yet"
    if subject.kind == "broker":
        mine = [one.as_json() for one in read_forecasts(store, conn_id, now) if one.broker == int(subject.name)]
        found["disks"] = mine
    return found | {"problem": problem}


def read_forecasts(store: HistoryStore, conn_id: str, now: int) -> list[DiskForecast]:
    """When each directory will be full; none where no history is kept. Blocks: reads Airflow's database."""
    samples = store.samples(conn_id, now - FORECAST_HOURS * 60, FORECAST_WIDTH, Only(topic="", group=""))
    try:
        return forecasts([(slot * 60, sample) for slot, sample in samples])
    except DBAPIError:
        return []
