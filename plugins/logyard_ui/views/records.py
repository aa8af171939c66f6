"""The records of a topic, for those who may read them."""

import asyncio
from typing import Annotated, Any, Literal

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.operators.contents.schemas.decoder import BySchema, refusing
from logyard.operators.contents.shown import Search
from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.access import records as access
from logyard.plugins.logyard_ui.dependencies import (
    REQUIRED_S,
    ConnId,
    RequestedCluster,
    Services,
    TopicName,
    services_of,
)
from logyard.plugins.logyard_ui.records.answer import answer_json, keeping, look
from logyard.plugins.logyard_ui.records.looks import Look
from logyard.plugins.logyard_ui.records.reading import Answer, Question
from logyard.plugins.logyard_ui.responses.optional_parts import error_line
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

LIMIT_MAX = 100
# How often it is looked whether the reader is still there.
_LOOK_UP_S = 0.25
# The reader has gone: nobody reads this status (that of nginx for it).
_LEFT = 499

router = APIRouter()

Text = Annotated[str, Query(max_length=500)]


def may_read(user: GetUserDep, conn_id: ConnId = ClusterHook.default_conn_name) -> None:
    """403 for who may not look at records."""
    if not access.may_read(conn_id, user):
        raise HTTPException(403, "records are shown to those who may read this connection in Airflow")


@router.get("/records", dependencies=[Depends(may_read)])
async def records(
    request: Request,
    user: GetUserDep,
    cluster: RequestedCluster,
    topic: TopicName,
    conn_id: ConnId = ClusterHook.default_conn_name,
    partition: Annotated[list[int], Query(max_length=1000)] = [],  # noqa: B006 (FastAPI copies it)
    start: Literal["newest", "offset", "time"] = "newest",
    at: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 20,
    key: Text = "",
    text: Text = "",
) -> Response:
    """The newest records, or those from an offset or a time on. Each look is an entry in Airflow's audit log."""
    snapshot = required(await cluster.state(REQUIRED_S, [topic])).snapshot
    if topic not in snapshot.topics:
        raise HTTPException(404, f"there is no topic {topic}")
    leaders = {v.partition: v.leader for v in snapshot.topics[topic].partitions if v.leader in snapshot.brokers}
    question = Question(topic, tuple(sorted(set(partition))), start, at, limit, bool(key or text))
    try:
        fields = access.hidden_from(user, topic)
    except BadSettings as problem:
        raise HTTPException(502, f"no records are shown: {problem}") from None
    looked: dict[str, Any] = {"conn_id": conn_id, "topic": topic, "partitions": list(question.partitions)}
    looked |= {"start": start, "at": at, "limit": limit, "key": key, "text": text}
    await asyncio.to_thread(access.note, user, looked)  # before anything is shown
    services = services_of(request)
    keep = keeping(topic, fields, Search.of(key, text), _by_schema(services, cluster.settings))
    begun = services.looks.begin(lambda left: look(cluster.open_client(), question, leaders, keep, left))
    answer = await _answer(request, begun)
    return await respond_in_thread(request, lambda: answer_json(question, answer, masked=fields is not None))


def _by_schema(services: Services, settings: ClusterSettings) -> BySchema | None:
    if settings.schema_registry_problem:
        return refusing(settings.schema_registry_problem)
    return None if settings.schema_registry is None else services.decoder.by(settings.schema_registry)


async def _answer(request: Request, begun: Look[Answer]) -> Answer:
    """Wait for the look while its reader is there."""
    waited = asyncio.wrap_future(begun.future)
    try:
        while not waited.done():
            await asyncio.wait({waited}, timeout=_LOOK_UP_S)
            if not waited.done() and await request.is_disconnected():
                raise HTTPException(_LEFT, "the reader has left")
        return waited.result()
    except ApiError as refusal:
        if refusal.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise HTTPException(403, "the connection's user may not read this topic") from None
        raise HTTPException(502, error_line(refusal)) from None
    except LogyardError as problem:
        raise HTTPException(502, error_line(problem)) from None
    finally:
        begun.leave()  # also where this request is cancelled
