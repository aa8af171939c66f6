"""Which connections a user sees, and what is behind them; nobody makes this server talk to any other host."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails
from airflow.sdk import conf

from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.operators.hooks.cluster import CONFIG_SECTION, ClusterHook, read_connection

LISTED_MAX = 200
KEPT_S = 10.0
KEPT_MAX = 64

_ENVIRONMENT = "AIRFLOW_CONN_"
EVERY = "*"


@dataclass(frozen=True, slots=True)
class Known:
    """A connection of type logyard: its settings, or what is wrong with them."""

    conn_id: str
    settings: ClusterSettings | None
    problem: str = ""
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """`complete` False: there may be others, which cannot be listed."""

    known: tuple[Known, ...]
    complete: bool


class Connections:
    """Connections as Airflow keeps them, each looked up once in ten seconds: a secrets backend may be slow and paid."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._kept: OrderedDict[str, tuple[float, Known | None]] = OrderedDict()

    def find(self, conn_id: str, user: Any) -> Known | None:
        """The connection, if there is one of our type and the user may see it. Waits for Airflow's database."""
        return self._known(conn_id) if may_see(conn_id, user) else None

    def listing(self, user: Any) -> Listing:
        """Those that can be listed and that the user may see: of the database, the environment and the option."""
        stored = _stored_ids(LISTED_MAX + 1)
        named = [name.removeprefix(_ENVIRONMENT).lower() for name in os.environ if name.startswith(_ENVIRONMENT)]
        ids = sorted({*stored, *named, *_everybodys(), ClusterHook.default_conn_name} - {EVERY})
        # Permissions first: what is not shown is not looked up either.
        found = [self._known(conn_id) for conn_id in ids[: LISTED_MAX + 1] if may_see(conn_id, user)]
        known = [one for one in found if one is not None]
        elsewhere = bool(conf.get("secrets", "backend", fallback=""))
        return Listing(tuple(known[:LISTED_MAX]), len(ids) <= LISTED_MAX and not elsewhere)

    def _known(self, conn_id: str) -> Known | None:
        fresh, known = self._fresh(conn_id)
        if fresh:
            return known
        # One at a time: fifty viewers whose answers age at the same moment ask the backend once.
        with self._looking:
            fresh, known = self._fresh(conn_id)
            if fresh:
                return known
            known = _look_up(conn_id)
            with self._lock:
                self._kept[conn_id] = (self._clock(), known)
                self._kept.move_to_end(conn_id)
                while len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
            return known

    def _fresh(self, conn_id: str) -> tuple[bool, Known | None]:
        with self._lock:
            taken, known = self._kept.get(conn_id, (float("-inf"), None))
            return self._clock() - taken < KEPT_S, known


def may_see(conn_id: str, user: Any) -> bool:
    """Whoever may read the connection in Airflow, and everybody for what `[logyard] page_connections` names.

    A team's connection (multi-team Airflow) is never everybody's.
    """
    team = _team(conn_id)
    details = ConnectionDetails(conn_id=conn_id, team_name=team)
    if get_auth_manager().is_authorized_connection(method="GET", details=details, user=user):
        return True
    shown = _everybodys()
    return team is None and (EVERY in shown or conn_id in shown)


def _everybodys() -> set[str]:
    text = conf.get(CONFIG_SECTION, "page_connections", fallback=EVERY) or ""
    return {name.strip() for name in text.split(",") if name.strip()}


def _team(conn_id: str) -> str | None:
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    from airflow.models.connection import Connection

    team: str | None = Connection.get_team_name(conn_id)
    return team


def _look_up(conn_id: str) -> Known | None:
    try:
        connection = ClusterHook.get_connection(conn_id)
    except Exception:  # Airflow has several ways to say that there is none
        return None
    if connection.conn_type != ClusterHook.conn_type:
        return None
    description = getattr(connection, "description", None)
    try:
        return Known(conn_id, read_connection(connection), description=description)
    except BadSettings as problem:
        return Known(conn_id, None, str(problem), description)


def _stored_ids(most: int) -> list[str]:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ours = select(Connection.conn_id).where(Connection.conn_type == ClusterHook.conn_type)
    with create_session(scoped=False) as session:
        return [str(name) for name in session.scalars(ours.order_by(Connection.conn_id).limit(most))]
