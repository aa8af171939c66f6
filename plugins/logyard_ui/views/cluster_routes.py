"""What the page reads of clusters: GET only. docs/page-api.md has an example of each answer."""

import asyncio
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.groups.groups import DEAD
from logyard.admin.reassignment.disks import DiskTooFull
from logyard.admin.reassignment.planner import PlanImpossible
from logyard.admin.settings import BadSettings
from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.cache.cache import Found
from logyard.plugins.logyard_ui.cluster.clusters import Cluster
from logyard.plugins.logyard_ui.cluster.sizes import directories_json
from logyard.plugins.logyard_ui.cluster.state import Seen
from logyard.plugins.logyard_ui.dependencies import Page
from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.responses.optional_parts import Extras
from logyard.plugins.logyard_ui.responses.responses import answer, answer_json, answer_large, settled
from logyard.plugins.logyard_ui.views.brokers import brokers_json
from logyard.plugins.logyard_ui.views.groups import group_json, groups_json
from logyard.plugins.logyard_ui.views.overview import overview_json
from logyard.plugins.logyard_ui.views.plan import BadQuestion, PlanQuestion
from logyard.plugins.logyard_ui.views.reassignments import moves_json
from logyard.plugins.logyard_ui.views.topic import TopicParts, configs_json, topic_json

# How long an answer waits for what it cannot do without, and for what may as well come with the next one.
MAIN_S, PLAN_S, PART_S, GLANCE_S = 8.0, 20.0, 1.5, 0.5

router = APIRouter(prefix="/api")

ConnId = Annotated[str, Query(min_length=1, max_length=250, pattern=r"^[\w.\-]+$")]
Number = Annotated[int, Query(ge=0, le=2**31 - 1)]
TopicName = Annotated[str, Query(min_length=1, max_length=249)]


def page_of(request: Request) -> Page:
    page: Page = request.app.state.page
    return page


def watched(request: Request, user: GetUserDep, conn_id: ConnId = ClusterHook.default_conn_name) -> Cluster:
    """The cluster behind a connection that the user may see; the same answer for one that is not there."""
    page = page_of(request)
    known = page.connections.find(conn_id, user)
    if known is None:
        raise HTTPException(404, f"there is no connection {conn_id} of type {ClusterHook.conn_type}")
    if known.settings is None:
        raise HTTPException(502, f"connection {conn_id}: {known.problem}")
    return page.clusters.cluster(conn_id, known.settings)


Watched = Annotated[Cluster, Depends(watched)]


async def seen_of(cluster: Cluster) -> Seen:
    return settled(await cluster.seen(MAIN_S))


@router.get("/overview")
async def overview(request: Request, cluster: Watched, conn_id: ConnId = ClusterHook.default_conn_name) -> Response:
    """Health, controller and its history, counts, what is amiss. Also answered when the cluster does not answer."""
    seen = await cluster.seen(MAIN_S)
    if seen.pending:
        settled(seen)
    await cluster.epoch()
    moving = await cluster.running(GLANCE_S)
    return answer_json(request, overview_json(conn_id, seen, None if moving.problem else moving.value))


@router.get("/topics")
async def topics(request: Request, cluster: Watched) -> Response:
    """All topics, one row each, with a version: the same version, the same list."""
    return answer(request, (await seen_of(cluster)).topics)


@router.get("/replicas")
async def replicas(request: Request, cluster: Watched) -> Response:
    """The map of replicas and leaders by topic and broker."""
    return answer(request, (await seen_of(cluster)).replicas)


@router.get("/sizes")
async def sizes(request: Request, cluster: Watched) -> Response:
    """Bytes by topic and by broker."""
    snapshot = (await seen_of(cluster)).snapshot
    found = settled(await cluster.sizes(snapshot, MAIN_S))
    return answer(request, found.document or Document.plain({}))


@router.get("/topic")
async def topic(request: Request, cluster: Watched, name: TopicName) -> Response:
    """One topic: partitions, offsets, bytes, settings, the groups that read it."""
    seen = await cluster.seen(MAIN_S, [name])
    found = settled(seen)
    if name not in found.snapshot.topics:
        raise HTTPException(404, f"there is no topic {name}")
    extras, snapshot = Extras(), found.snapshot
    moving, offsets, configs, held, groups = await asyncio.gather(
        cluster.running(GLANCE_S),
        cluster.offsets(name, snapshot, PART_S),
        cluster.topic_configs(name, PART_S),
        cluster.sizes(snapshot, PART_S),
        cluster.groups(PART_S),
    )
    lag = None if groups.value is None else await cluster.lag(groups.value, snapshot, PART_S)
    parts = TopicParts(
        running=moving.value,
        offsets=extras.take("offsets", offsets),
        configs=extras.take("configs", configs),
        sizes=extras.take("sizes", held),
        groups=extras.take("groups", groups),
        lag=None if lag is None else extras.take("groups", lag),
    )
    rest = {"taken_at_ms": seen.taken_ms} | extras.as_json()
    return await answer_large(request, lambda: topic_json(name, found, parts) | rest)


@router.get("/brokers")
async def brokers(request: Request, cluster: Watched) -> Response:
    """Brokers with replicas, leaders, bytes, skew; racks."""
    seen = await cluster.seen(MAIN_S)
    found, extras = settled(seen), Extras()
    held = extras.take("sizes", await cluster.sizes(found.snapshot, PART_S))
    content = brokers_json(found, held) | extras.as_json() | {"taken_at_ms": seen.taken_ms}
    return answer_json(request, content)


@router.get("/broker")
async def broker(request: Request, cluster: Watched, number: Annotated[Number, Query(alias="id")]) -> Response:
    """One broker with its directories and settings."""
    found, extras = await seen_of(cluster), Extras()
    if number not in found.tally.columns:
        raise HTTPException(404, f"there is no broker {number}")
    held, configs = await asyncio.gather(cluster.sizes(found.snapshot, PART_S), _broker_configs(cluster, found, number))
    known = extras.take("sizes", held)
    values = None if configs is None else extras.take("configs", configs)
    content = {
        "broker": next(entry for entry in brokers_json(found, known)["brokers"] if entry["id"] == number),
        "log_dirs": None if known is None else directories_json(known, number),
        "configs": None if values is None else configs_json(values),
    }
    return answer_json(request, content | extras.as_json())


async def _broker_configs(cluster: Cluster, seen: Seen, broker: int) -> Found[dict[str, ConfigValue]] | None:
    """Only a broker itself knows its settings: a dead one is not asked."""
    return await cluster.broker_configs(broker, PART_S) if broker in seen.snapshot.brokers else None


@router.get("/reassignments")
async def reassignments(request: Request, cluster: Watched) -> Response:
    """What moves now, whoever started it, and how far it is by bytes."""
    seen = await cluster.seen(MAIN_S)
    snapshot, extras = settled(seen).snapshot, Extras()
    moving = await cluster.running(MAIN_S)
    extras.take("reassignments", moving)
    running = None if moving.problem is not None else moving.value
    progress = None
    if running:
        progress = extras.take("sizes", await cluster.progress(running, snapshot, PART_S))
    rest = {"taken_at_ms": moving.taken_ms} | extras.as_json()
    return await answer_large(request, lambda: moves_json(running, progress, snapshot) | rest)


@router.get("/plan")
async def plan(
    request: Request,
    cluster: Watched,
    topic: Annotated[list[TopicName], Query(max_length=200)] = [],  # noqa: B006 (FastAPI copies it)
    drain: Annotated[list[Number], Query(max_length=200)] = [],  # noqa: B006
    replication_factor: Annotated[int | None, Query(ge=1, le=100)] = None,
    balance: bool = False,
    balance_disk: bool = False,
    throttle: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """A preview of what would move for these goals. Changes nothing."""
    snapshot = settled(await cluster.seen(MAIN_S, topic)).snapshot
    moving, held = await asyncio.gather(cluster.running(MAIN_S), cluster.sizes(snapshot, MAIN_S))
    question = PlanQuestion(
        topics=tuple(sorted(set(topic))),
        drain=tuple(sorted(set(drain))),
        replication_factor=replication_factor,
        balance=balance,
        balance_disk=balance_disk,
        throttle=throttle or cluster.settings.throttle,
        limit=limit,
    )
    running = None if moving.problem is not None else moving.value
    found = await cluster.plan(question, snapshot, running, settled(held), PLAN_S)
    if isinstance(found.problem, (BadQuestion, BadSettings, DiskTooFull, PlanImpossible)):
        raise HTTPException(422, str(found.problem))
    return answer(request, settled(found))


@router.get("/groups")
async def groups(request: Request, cluster: Watched) -> Response:
    """Consumer groups with state, members and lag."""
    snapshot = (await seen_of(cluster)).snapshot
    found = await cluster.groups(MAIN_S)
    listed, extras = settled(found), Extras()
    lag = extras.take("lag", await cluster.lag(listed, snapshot, PART_S))
    if lag is not None and lag.problem is not None:
        extras.problems["lag"] = lag.problem
    rest = {"taken_at_ms": found.taken_ms} | extras.as_json()
    return await answer_large(request, lambda: groups_json(listed, lag) | rest)


@router.get("/group")
async def group(
    request: Request, cluster: Watched, name: Annotated[str, Query(min_length=1, max_length=500)]
) -> Response:
    """One group: members, what each one reads, offsets and lag."""
    snapshot = (await seen_of(cluster)).snapshot
    detail = settled(await cluster.group(name, snapshot, MAIN_S))
    if detail.group.state == DEAD:
        raise HTTPException(404, f"there is no group {name}")
    listed = await cluster.groups(0)
    kind = next((one.protocol_type for one in listed.value or () if one.group_id == name), None)
    extras = Extras(problems={} if detail.problem is None else {"offsets": detail.problem})
    return await answer_large(request, lambda: group_json(detail, kind) | extras.as_json())
