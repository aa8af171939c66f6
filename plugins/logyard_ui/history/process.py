"""The history of one API server: its store, and the thread that takes samples."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from logyard.admin.settings import ClusterSettings
from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.access.connections import Connections
from logyard.plugins.logyard_ui.history.sampler import Sampler, is_kept
from logyard.plugins.logyard_ui.history.store import HistoryStore

# For one sample; a cluster that is down keeps the others waiting no longer.
_REQUEST_S, _TOTAL_S = 5.0, 15.0


def open_store() -> HistoryStore:
    """In Airflow's database."""
    return HistoryStore(_session)


def _session() -> AbstractContextManager[Any]:
    from airflow.utils.session import create_session

    return create_session(scoped=False)


def begin() -> None:
    """Take samples from now on, unless `[logyard] page_history` is off."""
    if is_kept():
        connections = Connections()
        Sampler(open_store(), ClusterHook.connector, lambda: _settings(connections)).start()


def _settings(connections: Connections) -> dict[str, ClusterSettings]:
    found = {one.conn_id: one.settings for one in connections.every()}
    return {
        conn_id: replace(settings, request_timeout_s=_REQUEST_S, total_timeout_s=_TOTAL_S)
        for conn_id, settings in found.items()
        if settings is not None
    }
