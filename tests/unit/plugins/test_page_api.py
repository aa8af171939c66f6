"""docs/page-api.md says what the routes answer: every route, every member of its example."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from fastapi.routing import APIRoute

from logyard.admin.acls import acls
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.configs.entities import Entity
from logyard.admin.transactions.transactions import Producer, Transaction
from logyard.admin.users.users import NewPassword
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.access.actions import ActionDag, Actions
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import PageClient, connections, make_app

pytestmark = pytest.mark.airflow

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/page-api.md"
SECTION = re.compile(r"^### `GET api/(\w+)[^`]*`\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"```json\n(.*?)```", re.DOTALL)
QUERIES = {
    "search": "q=",
    "history": "kind=topic&name=orders",
    "compare": "kind=topics&name=orders&name=payments",
    "topic": "name=orders",
    "topic_check": "action=create_topic&topic=new&replication_factor=9",
    "records": "topic=orders",
    "group": "name=billing",
    "broker": "id=1",
    "broker_check": "broker=1&set=broker.id=4",
    "plan": "topic=payments&drain=1",
}


@pytest.fixture(scope="module")
def viewer() -> Iterator[PageClient]:
    cluster = MemoryCluster(dict.fromkeys((1, 2, 3, 4), "a"), ticks_to_move=1000)
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("orders", assignment={0: [1, 2, 3]}))
    client.create_topic(NewTopic("payments", assignment={0: [1, 2]}))
    cluster.tick()
    client.alter_reassignments({TopicPartition("orders", 0): [4, 1, 2]})
    cluster.kill(3)
    for _ in range(5):
        cluster.tick()
    cluster.group_commits["billing"] = {TopicPartition("orders", 0): 1}
    cluster.group_members["billing"] = 1
    orders = TopicPartition("orders", 0)
    cluster.producers[orders] = [Producer(4000, 0, -1, 7, 1, 0)]
    cluster.transactions["pay"] = Transaction("pay", 1, 4000, 0, "Ongoing", 60_000, 1, (orders,))
    cluster.znodes.make("/consumers/reports/offsets/orders/0", b"1")
    client.create_acls(acls.parse({"topic": "orders", "principal": "User:billing", "operation": "Read"}))
    client.alter_quotas(Entity(("users",), ("billing",)), {"consumer_byte_rate": 1048576.0})
    client.alter_users([NewPassword("billing", "SCRAM-SHA-512", "a password", 8192)], {})
    client.alter_broker_configs(None, {"log.retention.ms": "86400000"})
    with connections():
        names = ("create_topic", "alter_broker_settings")
        dags = [ActionDag(name, f"logyard_{name}", "logyard_default", False) for name in names]
        yield PageClient(make_app(cluster, actions=Actions(lambda: dags)), "OP")


def _examples() -> dict[str, dict[str, Any]]:
    found = {}
    for path, text in SECTION.findall(DOCUMENT.read_text()):
        example = EXAMPLE.search(text)
        assert example, path
        found[path] = json.loads(example[1])
    return found


def test_every_route_is_told() -> None:
    routes = {route.path for route in make_app().routes if isinstance(route, APIRoute)}
    assert {f"/api/{path}" for path in _examples()} == {path for path in routes if path.startswith("/api/")}


@pytest.mark.parametrize("path", sorted(set(_examples()) - {"actions"}))
def test_an_example_has_the_members_of_the_answer(viewer: PageClient, path: str) -> None:
    _alike(_examples()[path], viewer.json(f"/api/{path}?{QUERIES.get(path, '')}"), path)


def _alike(told: Any, found: Any, where: str) -> None:
    """The same members; of lists the first entries, of objects whose members are names nothing more."""
    if isinstance(told, dict) and isinstance(found, dict):
        if not _are_names(told) and "…" not in told:
            assert set(told) == set(found), where
            for name in told:
                _alike(told[name], found[name], f"{where}.{name}")
    elif isinstance(told, list) and isinstance(found, list):
        if told and found:
            _alike(told[0], found[0], f"{where}[0]")
    elif told is not None and found is not None:
        assert isinstance(found, (int, float) if isinstance(told, (int, float)) else type(told)), where


def _are_names(told: dict[str, Any]) -> bool:
    """Whether the members are brokers, partitions, topics."""
    return all(name.isdigit() or name in ("orders", "payments") for name in told)
