"""Topics as assets: `kafka://HOST:PORT/TOPIC`, the name that OpenLineage gives a topic too, and the events of tasks.

Registered for the scheme `kafka` (provider_info.py), unless Airflow's own Kafka provider is there: then its handler
stays, which takes every URI as it is written.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from airflow.sdk import Asset, AssetAlias, Context

from logyard.operators.hooks.cluster import ClusterHook

log = logging.getLogger(__name__)

SCHEME = "kafka"
TOPICS_ALIAS = "logyard_topics"
"""The alias whose events are those of all topics that tasks write."""

_PORT = 9092
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """The normal form: one server in lower case with its port, the topic, nothing else. Raises ValueError.

    Of several servers (`a:9092,b:9092`) the first one names the cluster, as OpenLineage says.
    """
    if not uri.netloc:
        raise ValueError("a topic's URI is kafka://HOST:PORT/TOPIC: the server is missing")
    topic = uri.path.strip("/")
    if not topic:
        raise ValueError("a topic's URI is kafka://HOST:PORT/TOPIC: the topic is missing")
    if not _NAME.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(f"a topic's URI is kafka://HOST:PORT/TOPIC: {topic!r} is no topic's name")
    return SplitResult(SCHEME, _server(uri.netloc.rpartition("@")[2]), f"/{topic}", "", "")


def create_asset(*, server: str, topic: str, extra: dict[str, Any] | None = None) -> Asset:
    """The asset of a topic, in normal form with any handler. Raises ValueError."""
    return Asset(uri=topic_uri(server, topic), extra=extra or {})


def convert_asset_to_openlineage(asset: Asset, _context: Any) -> Any:
    """OpenLineage's dataset of a topic's asset: namespace `kafka://HOST:PORT`, name TOPIC."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    parts = sanitize_uri(urlsplit(asset.uri))
    return Dataset(namespace=f"{SCHEME}://{parts.netloc}", name=parts.path.lstrip("/"))


def topic_uri(server: str, topic: str) -> str:
    """`kafka://HOST:PORT/TOPIC` of a server `host[:port]`, or the first of several. Raises ValueError."""
    return sanitize_uri(SplitResult(SCHEME, server, f"/{topic}", "", "")).geturl()


def naming_server(logyard_conn_id: str) -> str:
    """The server that names a connection's cluster: its `asset_server`, else its first bootstrap server."""
    settings = ClusterHook(logyard_conn_id).settings
    return settings.asset_server or settings.bootstrap[0]


def topic_asset(topic: str, logyard_conn_id: str = ClusterHook.default_conn_name) -> Asset:
    """The asset of a topic of a connection's cluster, for code that runs in a task.

    While Airflow parses a DAG it is better to write the URI: reading a connection costs time at every parse.
    """
    return create_asset(server=naming_server(logyard_conn_id), topic=topic)


def with_outlets(made: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operator's constructor; one that writes topics has their alias as outlet by default."""
    if made.writes is not None:
        kwargs.setdefault("outlets", [AssetAlias(TOPICS_ALIAS)])
    return kwargs


def announce(operator: Any, context: Context, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Add an event for each topic (topic → the event's `extra`) to what the task's outlets tell.

    An outlet that is the topic's asset itself gets the `extra`; else the alias `logyard_topics`, if it is an outlet,
    leads to the asset. What the task did stays done: a name that is no URI, or a connection that cannot be read at the
    end, is only logged. Else another try would do all of it again.
    """
    events: Any = context.get("outlet_events")
    if events is None or not topics:
        return
    try:
        conn_id = written_connection(operator)
        server = naming_server(conn_id)
        found = {topic: create_asset(server=server, topic=topic) for topic in topics}
    except Exception as problem:  # Airflow's too: the connection may be gone by now, or its secrets backend away
        log.warning("no asset event: %s", problem)
        return
    for topic, asset in found.items():
        extra = {"logyard_conn_id": conn_id, "topic": topic, **topics[topic]}
        own = next((one for one in operator.outlets if isinstance(one, Asset) and one.uri == asset.uri), None)
        if own is not None:
            events[own].extra.update(extra)
        elif any(isinstance(one, AssetAlias) and one.name == TOPICS_ALIAS for one in operator.outlets):
            events[AssetAlias(TOPICS_ALIAS)].add(asset, extra=extra)


def written_connection(operator: Any) -> str:
    """The connection of the cluster whose topics an operator writes: that of a copy may be another than its own."""
    found: str = getattr(operator, "written_conn_id", operator.logyard_conn_id)
    return found


def _server(netloc: str) -> str:
    first = netloc.split(",")[0].strip().lower()
    host, colon, port = first.rpartition(":")
    if not colon or first.endswith("]"):
        host, port = first, str(_PORT)
    if not host.strip("[]") or not port.isdecimal():
        raise ValueError(f"a topic's URI is kafka://HOST:PORT/TOPIC: {netloc!r} is no server")
    return f"{host}:{port}"
