"""Settings of several topics, or of several brokers, side by side."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.plugins.logyard_ui.cluster.comparison import compared
from logyard.plugins.logyard_ui.cluster.state import ClusterState
from logyard.plugins.logyard_ui.dependencies import OPTIONAL_S, REQUIRED_S, RequestedCluster, TopicName
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

NAMES_MAX = 8

router = APIRouter()


@router.get("/compare")
async def compare(
    request: Request,
    cluster: RequestedCluster,
    kind: Literal["topics", "brokers"],
    name: Annotated[list[TopicName], Query(min_length=1, max_length=NAMES_MAX)],
) -> Response:
    """The settings of these topics, or brokers by id: what differs first, then what is set, then defaults."""
    names, parts = list(dict.fromkeys(name)), OptionalParts()
    state = required(await cluster.state(REQUIRED_S, names if kind == "topics" else ()))
    unknown = [one for one in names if not _is_known(state, kind, one)]
    if unknown:
        raise HTTPException(404, f"there is no {kind.removesuffix('s')} {unknown[0]}, or it is not alive")
    reads = [
        cluster.topic_configs(one, OPTIONAL_S) if kind == "topics" else cluster.broker_configs(int(one), OPTIONAL_S)
        for one in names
    ]
    configs = [parts.take(one, cached) for one, cached in zip(names, await asyncio.gather(*reads), strict=True)]
    rest: dict[str, Any] = {"kind": kind, "names": names} | parts.as_json()
    return await respond_in_thread(request, lambda: {"settings": compared(configs)} | rest)


def _is_known(state: ClusterState, kind: str, name: str) -> bool:
    if kind == "topics":
        return name in state.snapshot.topics
    return name.isascii() and name.isdecimal() and len(name) < 11 and int(name) in state.snapshot.brokers
