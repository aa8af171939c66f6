"""Whether the brokers would take a change of a topic, before its DAG is started."""

from typing import Annotated, Literal

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.cluster.topic_check import ALTER, CREATE, EXPAND, TopicChange
from logyard.plugins.logyard_ui.dependencies import REQUIRED_S, ConnId, RequestedCluster, TopicName, services_of
from logyard.plugins.logyard_ui.responses.responses import required, respond_json

# The action, and the DAG that carries it out.
DAGS = {CREATE: "create_topic", ALTER: "topic_lifecycle", EXPAND: "topic_lifecycle"}

router = APIRouter()

Action = Literal["create_topic", "alter_topic", "expand_topic"]
Setting = Annotated[str, Query(max_length=4000)]
Count = Annotated[int | None, Query(ge=-(2**31), le=2**31 - 1)]


def may_change(
    request: Request, user: GetUserDep, action: Action, conn_id: ConnId = ClusterHook.default_conn_name
) -> None:
    """Who may not start the DAG has no change to check. 403."""
    dags = services_of(request).actions.of(conn_id, user)
    if not any(dag["action"] == DAGS[action] and dag["may_run"] for dag in dags):
        raise HTTPException(403, f"you may not run {DAGS[action]}")


@router.get("/topic_check", dependencies=[Depends(may_change)])
async def topic_check(
    request: Request,
    cluster: RequestedCluster,
    action: Action,
    topic: TopicName,
    partitions: Count = None,
    replication_factor: Count = None,
    set: Annotated[list[Setting], Query(max_length=100)] = [],  # noqa: A002, B006 (its name in the address; FastAPI copies it)
    unset: Annotated[list[Setting], Query(max_length=100)] = [],  # noqa: B006
) -> Response:
    """What the brokers would refuse, by the part of the change; asked of them with validate-only. Changes nothing."""
    pairs = tuple((name, value) for name, _, value in (line.partition("=") for line in set))
    change = TopicChange(action, topic, partitions, replication_factor, pairs, tuple(unset))
    checked = await cluster.topic_check(change, REQUIRED_S)
    refused = required(checked).refusal
    return respond_json(request, {"refused": None if refused is None else {"part": refused.part, "text": refused.text}})
