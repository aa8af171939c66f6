"""The actions on a cluster that the user may see."""

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.access.records import may_read
from logyard.plugins.logyard_ui.dependencies import ConnId, RequestedCluster, services_of
from logyard.plugins.logyard_ui.responses.responses import respond_json

router = APIRouter()


@router.get("/actions")
def actions(
    request: Request, user: GetUserDep, cluster: RequestedCluster, conn_id: ConnId = ClusterHook.default_conn_name
) -> Response:
    """The DAGs that act on this cluster and that the user may see, and whether the user may look at records.

    DAGs are started by Airflow's own API.
    """
    return respond_json(
        request, {"actions": services_of(request).actions.of(conn_id, user), "records": may_read(conn_id, user)}
    )
