"""The DAGs that act on a cluster, found in Airflow: whoever installed them chose their ids and connections."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.access.connections import of_team

# An action is known by the end of its DAG's id: `<prefix>reassign_replicas`.
ACTIONS = (
    "create_topic",
    "topic_lifecycle",
    "topics_as_code",
    "reassign_replicas",
    "cancel_reassignment",
    "decommission_broker",
    "elect_leaders",
    "reset_offsets",
    "delete_groups",
    "abort_hanging_transactions",
    "grant_access",
    "revoke_access",
    "alter_acls",
    "alter_user",
    "alter_quotas",
    "alter_broker_settings",
    "send_record",
    "copy_records",
    "recover_controller",
    "controller_watch",
    "compact_segments",
    "audit_replicas",
    "export_segments",
    "retention_report",
)
TAG = "logyard"
# The field of a form that chooses the cluster, and how tasks name it (dags/factories/params.py).
CHOSEN = "logyard_conn_id"
_CHOSEN = re.compile(r"\{\{\s*params\.logyard_conn_id\s*\}\}")
KEPT_S = 10.0
DAGS_MAX = 500


@dataclass(frozen=True, slots=True)
class ActionDag:
    """A DAG made by one of our factories, and the connection that its tasks name, or may name: then `default_conn_id`
    is that of runs whose configuration names none."""

    action: str
    dag_id: str
    conn_id: str
    paused: bool
    default_conn_id: str | None = None


class Actions:
    """Read from the serialized DAGs, at most once in KEPT_S for all users."""

    def __init__(
        self, read: "Callable[[], Iterable[ActionDag]] | None" = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read or read_dags, clock
        self._lock = threading.Lock()
        self._kept: tuple[float, tuple[ActionDag, ...]] = (float("-inf"), ())

    def of(self, conn_id: str, user: Any) -> list[dict[str, Any]]:
        """The DAGs for that connection that the user may see; the shortest id first where several have one action.

        Entries are `{action, dag_id, paused, may_run, default_conn_id, other_conn_ids}`; the last one: the other
        connections among which the DAG's form chooses.
        """
        manager = get_auth_manager()
        known = self._dags()
        dags = [dag for dag in known if dag.conn_id == conn_id]
        teams = _teams([dag.dag_id for dag in dags])
        found = []
        for dag in sorted(dags, key=lambda dag: (ACTIONS.index(dag.action), len(dag.dag_id), dag.dag_id)):
            details = DagDetails(id=dag.dag_id, **of_team(teams.get(dag.dag_id)))
            if manager.is_authorized_dag(method="GET", details=details, user=user):
                may_run = manager.is_authorized_dag(
                    method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user
                )
                entry = {"action": dag.action, "dag_id": dag.dag_id, "paused": dag.paused, "may_run": bool(may_run)}
                others = sorted({one.conn_id for one in known if one.dag_id == dag.dag_id} - {conn_id})
                found.append(entry | {"default_conn_id": dag.default_conn_id, "other_conn_ids": others})
        return found

    def _dags(self) -> tuple[ActionDag, ...]:
        with self._lock:
            taken, dags = self._kept
            if self._clock() - taken >= KEPT_S:
                dags = tuple(self._read())
                self._kept = (self._clock(), dags)
            return dags


def read_dags() -> list[ActionDag]:
    """Every DAG with TAG whose id ends with an action. Blocks: reads Airflow's database."""
    from airflow.models.dag import DagModel, DagTag
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    tagged = (
        select(DagModel.dag_id, DagModel.is_paused)
        .join(DagTag, DagTag.dag_id == DagModel.dag_id)
        .where(DagTag.name == TAG, DagModel.is_stale.is_(False))
        .order_by(DagModel.dag_id)
        .limit(DAGS_MAX)
    )
    with create_session(scoped=False) as session:
        paused = {str(dag_id): bool(is_paused) for dag_id, is_paused in session.execute(tagged) if action_of(dag_id)}
        if not paused:
            return []
        stored = SerializedDagModel.get_latest_serialized_dags(dag_ids=list(paused), session=session)
        return [one for dag in stored for one in dags_of(dag.dag_id, dag.data or {}, paused=paused[dag.dag_id])]


def dags_of(dag_id: str, data: Mapping[str, Any], *, paused: bool) -> list[ActionDag]:
    """The DAG, once for each connection; not at all where it was serialized in a way that is not known."""
    try:
        named = connections_of(data)
    except (AttributeError, TypeError, ValueError):
        return []  # by another version of Airflow, until it reads the file again: the other DAGs are shown
    return [
        ActionDag(action_of(dag_id) or "", dag_id, conn, paused, default) for conn, default in sorted(named.items())
    ]


def action_of(dag_id: str) -> str | None:
    return next((action for action in ACTIONS if dag_id.endswith(action)), None)


def connections_of(data: Mapping[str, Any]) -> dict[str, str | None]:
    """The connections that a serialized DAG's tasks name; an operator of Logyard that names none uses the default.

    Where tasks name what a run's form chooses, all that may be chosen, each with the form's default.
    """
    found: dict[str, str | None] = {}
    for task in data.get("dag", {}).get("tasks", ()):
        fields = task.get("__var", {})
        partial = fields.get("partial_kwargs", {})
        partial = partial.get("__var", partial)
        if "logyard_conn_id" in (fields.get("template_fields") or ()):
            named = fields.get("logyard_conn_id", partial.get("logyard_conn_id", ClusterHook.default_conn_name))
            if isinstance(named, str) and _CHOSEN.fullmatch(named.strip()):
                found |= _choice(data)
            elif isinstance(named, str):
                found[named] = None
    return found


def _choice(data: Mapping[str, Any]) -> dict[str, str | None]:
    """What the form's field allows."""
    for name, param in data.get("dag", {}).get("params", ()):
        if name == CHOSEN:
            fields = param.get("__var", param)
            schema = fields.get("schema", {})
            allowed = schema.get("__var", schema).get("enum") or ()
            return {str(conn_id): str(fields.get("default")) for conn_id in allowed}
    return {}


def _teams(dag_ids: list[str]) -> Mapping[str, str | None]:
    from logyard.operators.airflow_names import conf

    if not dag_ids or not conf.getboolean("core", "multi_team", fallback=False):
        return {}
    from airflow.models.dag import DagModel

    teams: Mapping[str, str | None] = DagModel.get_dag_id_to_team_name_mapping(dag_ids)
    return teams
