"""The connections that a user may see, with their settings. The page contacts no other hosts than these name."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails

from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.operators.airflow_names import conf
from logyard.operators.hooks.cluster import CONFIG_SECTION, ClusterHook, read_connection

LISTED_MAX = 200
KEPT_S = 10.0
KEPT_MAX = 64

_ENVIRONMENT = "AIRFLOW_CONN_"
EVERY = "*"


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """A connection of type logyard with its settings; None where they are wrong (`problem` says how)."""

    conn_id: str
    settings: ClusterSettings | None
    problem: str = ""
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """`complete` False: there may be more connections, which Airflow cannot list."""

    connections: tuple[ClusterConnection, ...]
    complete: bool


class Connections:
    """Airflow's connections, each looked up at most once in KEPT_S: a secrets backend may be slow and cost money."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock, self._lookup_lock = threading.Lock(), threading.Lock()
        self._kept: OrderedDict[str, tuple[float, ClusterConnection | None]] = OrderedDict()

    def find(self, conn_id: str, user: Any) -> ClusterConnection | None:
        """The connection, if it is of type logyard and the user may see it. Blocks: reads Airflow's database."""
        return self._connection(conn_id) if may_see(conn_id, user) else None

    def every(self) -> list[ClusterConnection]:
        """All connections that can be listed, whoever may see them; not for answers to users."""
        found = [self._connection(conn_id) for conn_id in _ids()[:LISTED_MAX]]
        return [connection for connection in found if connection is not None]

    def listing(self, user: Any) -> Listing:
        """The connections that the user may see, of the database, the environment and `[logyard] page_connections`."""
        ids = _ids()
        # Permissions first: a connection that is not shown is not looked up.
        found = [self._connection(conn_id) for conn_id in ids[: LISTED_MAX + 1] if may_see(conn_id, user)]
        connections = [connection for connection in found if connection is not None]
        has_backend = bool(conf.get("secrets", "backend", fallback=""))
        return Listing(tuple(connections[:LISTED_MAX]), len(ids) <= LISTED_MAX and not has_backend)

    def _connection(self, conn_id: str) -> ClusterConnection | None:
        fresh, connection = self._cached(conn_id)
        if fresh:
            return connection
        # One look-up at a time: many viewers whose cached values expire at the same moment ask the backend once.
        with self._lookup_lock:
            fresh, connection = self._cached(conn_id)
            if fresh:
                return connection
            connection = _look_up(conn_id)
            with self._lock:
                self._kept[conn_id] = (self._clock(), connection)
                self._kept.move_to_end(conn_id)
                while len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
            return connection

    def _cached(self, conn_id: str) -> tuple[bool, ClusterConnection | None]:
        """Whether the cached value is fresh, and the value."""
        with self._lock:
            taken, connection = self._kept.get(conn_id, (float("-inf"), None))
            return self._clock() - taken < KEPT_S, connection


def may_see(conn_id: str, user: Any) -> bool:
    """Whether the user may read the connection in Airflow, or `[logyard] page_connections` shows it to everybody.

    A team's connection (multi-team Airflow) is never shown to everybody.
    """
    team = team_of(conn_id)
    details = ConnectionDetails(conn_id=conn_id, **of_team(team))
    if get_auth_manager().is_authorized_connection(method="GET", details=details, user=user):
        return True
    public = _public_ids()
    return team is None and (EVERY in public or conn_id in public)


def of_team(team: str | None) -> dict[str, Any]:
    """The argument of an object's details for its team; Airflow before 3.1 knows no teams."""
    return {} if team is None else {"team_name": team}


def _ids() -> list[str]:
    stored = _stored_ids(LISTED_MAX + 1)
    named = [name.removeprefix(_ENVIRONMENT).lower() for name in os.environ if name.startswith(_ENVIRONMENT)]
    return sorted({*stored, *named, *_public_ids(), ClusterHook.default_conn_name} - {EVERY})


def _public_ids() -> set[str]:
    text = conf.get(CONFIG_SECTION, "page_connections", fallback=EVERY) or ""
    return {name.strip() for name in text.split(",") if name.strip()}


def team_of(conn_id: str) -> str | None:
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    from airflow.models.connection import Connection

    team: str | None = Connection.get_team_name(conn_id)
    return team


def _look_up(conn_id: str) -> ClusterConnection | None:
    try:
        connection = ClusterHook.get_connection(conn_id)
    except Exception:  # Airflow raises several types where there is none
        return None
    if connection.conn_type != ClusterHook.conn_type:
        return None
    description = getattr(connection, "description", None)
    try:
        return ClusterConnection(conn_id, read_connection(connection), description=description)
    except BadSettings as problem:
        return ClusterConnection(conn_id, None, str(problem), description)


def _stored_ids(most: int) -> list[str]:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ours = select(Connection.conn_id).where(Connection.conn_type == ClusterHook.conn_type)
    with create_session(scoped=False) as session:
        return [str(name) for name in session.scalars(ours.order_by(Connection.conn_id).limit(most))]
