"""The settings of all brokers, and whether a broker would take a change of its own or of these."""

from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.cluster.broker_settings import BrokerChange
from logyard.plugins.logyard_ui.dependencies import REQUIRED_S, BrokerId, ConnId, RequestedCluster, services_of
from logyard.plugins.logyard_ui.responses.responses import required, respond_json
from logyard.plugins.logyard_ui.views.topic import configs_json

DAG = "alter_broker_settings"

router = APIRouter()

Setting = Annotated[str, Query(max_length=4000)]


def may_change(request: Request, user: GetUserDep, conn_id: ConnId = ClusterHook.default_conn_name) -> None:
    """Who may not start the DAG has no change to check. 403."""
    dags = services_of(request).actions.of(conn_id, user)
    if not any(dag["action"] == DAG and dag["may_run"] for dag in dags):
        raise HTTPException(403, f"you may not run {DAG}")


@router.get("/broker_defaults")
async def broker_defaults(request: Request, cluster: RequestedCluster) -> Response:
    """The dynamic settings of all brokers, for those that have no value of their own."""
    cached = await cluster.broker_defaults(REQUIRED_S)
    told = required(cached)
    configs: list[dict[str, Any]] = [one | {"override": True} for one in configs_json(told.value)]
    return respond_json(request, {"refused": told.refused, "configs": configs, "taken_at_ms": cached.taken_ms})


@router.get("/broker_check", dependencies=[Depends(may_change)])
async def broker_check(
    request: Request,
    cluster: RequestedCluster,
    broker: BrokerId | None = None,
    set: Annotated[list[Setting], Query(max_length=100)] = [],  # noqa: A002, B006 (its name in the address; FastAPI copies it)
    unset: Annotated[list[Setting], Query(max_length=100)] = [],  # noqa: B006
) -> Response:
    """What the brokers would refuse; asked of them with validate-only. Without `broker`: of all. Changes nothing."""
    pairs = tuple((name, value) for name, _, value in (line.partition("=") for line in set))
    checked = await cluster.broker_check(BrokerChange(broker, pairs, tuple(unset)), REQUIRED_S)
    refused = required(checked).refusal
    return respond_json(request, {"refused": None if refused is None else {"part": refused.part, "text": refused.text}})
