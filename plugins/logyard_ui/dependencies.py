"""What the routes have in common: the application's services, and the cluster that a request is about."""

from dataclasses import dataclass, field
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException, Query, Request

from logyard.operators.contents.schemas.decoder import Decoder
from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.access.actions import Actions
from logyard.plugins.logyard_ui.access.connections import Connections
from logyard.plugins.logyard_ui.cluster.clusters import CachedCluster, CachedClusters
from logyard.plugins.logyard_ui.history.process import open_store
from logyard.plugins.logyard_ui.history.store import HistoryStore
from logyard.plugins.logyard_ui.records.looks import Looks

# Seconds that an answer waits: for parts that it needs, for a plan, for parts that may come with the next answer, and
# for one that only adds a detail.
REQUIRED_S, PLAN_S, OPTIONAL_S, DETAIL_S = 8.0, 20.0, 1.5, 0.5

ConnId = Annotated[str, Query(min_length=1, max_length=250, pattern=r"^[\w.\-]+$")]
TopicName = Annotated[str, Query(min_length=1, max_length=249)]
BrokerId = Annotated[int, Query(ge=0, le=2**31 - 1)]


@dataclass(frozen=True)
class Services:
    """What one application has once for all requests."""

    clusters: CachedClusters
    connections: Connections = field(default_factory=Connections)
    actions: Actions = field(default_factory=Actions)
    looks: Looks = field(default_factory=Looks)
    decoder: Decoder = field(default_factory=Decoder)
    history: HistoryStore = field(default_factory=open_store)


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def cluster_of(request: Request, user: GetUserDep, conn_id: ConnId = ClusterHook.default_conn_name) -> CachedCluster:
    """The cluster behind the connection. 404 where the connection does not exist or the user may not see it."""
    services = services_of(request)
    connection = services.connections.find(conn_id, user)
    if connection is None:
        raise HTTPException(404, f"there is no connection {conn_id} of type {ClusterHook.conn_type}")
    if connection.settings is None:
        raise HTTPException(502, f"connection {conn_id}: {connection.problem}")
    return services.clusters.cluster(conn_id, connection.settings)


RequestedCluster = Annotated[CachedCluster, Depends(cluster_of)]
