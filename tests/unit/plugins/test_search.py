"""The search over topics, groups and brokers: order, words, kinds; keys in the box."""

import json
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import BrokerNode, NewTopic
from logyard.plugins.logyard_ui.cluster.search import best, best_brokers
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import PageClient

pytestmark = pytest.mark.airflow


def test_the_name_itself_comes_first_then_what_begins_with_it() -> None:
    names = ["eu.orders.v2", "orders.late", "orders", "Orders-eu", "payments"]
    assert best(names, "orders") == ["orders", "Orders-eu", "orders.late", "eu.orders.v2"]
    assert best(names, " EU orders ") == ["Orders-eu", "eu.orders.v2"]  # every word, anywhere
    assert best(names, "") == ["orders", "payments", "Orders-eu", "orders.late", "eu.orders.v2"]
    assert best(names, "nothing") == []


def test_brokers_by_id_host_and_rack() -> None:
    nodes = {1: BrokerNode(1, "host-a", 9092, "east"), 11: BrokerNode(11, "host-b", 9092, None)}
    known = [1, 2, 11]
    assert best_brokers(nodes, known, "1") == [1, 11]
    assert best_brokers(nodes, known, "broker 2") == [2]  # dead: only its id is known
    assert best_brokers(nodes, known, "EAST") == [1]
    assert best_brokers(nodes, known, "host-b:9092") == [11]
    assert best_brokers(nodes, known, "broker") == [1, 2, 11]


def test_the_route_finds_all_three(viewer: PageClient, cluster: MemoryCluster) -> None:
    for number in range(12):
        MemoryClient(cluster).create_topic(NewTopic(f"r{number}", 1, 1))
    found = viewer.json("/api/search?q=r")
    assert found["topics"][0] == {"name": "r0", "partitions": 1, "internal": False}
    assert (len(found["topics"]), found["topics_total"]) == (8, 12)
    assert found["groups"] == [{"group": "readers", "state": "Stable", "members": 2}]
    assert found["brokers"] == []
    only = viewer.json("/api/search?q=&kind=brokers&limit=2")
    assert ([one["id"] for one in only["brokers"]], only["brokers_total"]) == ([1, 2], 3)
    assert (only["topics"], only["groups"]) == ([], [])
    assert viewer.answer("/api/search?q=x&kind=others").status_code == 422


def test_a_name_is_text_wherever_it_comes_from(viewer: PageClient, cluster: MemoryCluster) -> None:
    cluster.group_commits["<img src=x>"] = {}
    answer = viewer.answer("/api/search?q=%3Cimg")
    assert "<img" not in answer.text
    assert json.loads(answer.text)["groups"][0]["group"] == "<img src=x>"


def test_keys_move_among_the_entries(pure: Any) -> None:
    found = {
        "topics": [{"name": "t", "partitions": 1}],
        "topics_total": 3,
        "groups": None,
        "groups_total": None,
        "brokers": [{"id": 2, "host": "h", "rack": None, "alive": True}, {"id": 3, "alive": False}],
        "brokers_total": 2,
    }
    asked = (
        f"[m.entries({json.dumps(found)}).map((one) => [one.kind, one.label, one.note, one.place]), m.entries(null),"
        f" m.left({json.dumps(found)}), m.moved('ArrowDown', 2, 3), m.moved('ArrowUp', 0, 3),"
        " m.moved('ArrowDown', -1, 3), m.moved('ArrowUp', -1, 3), m.moved('End', 0, 3),"
        " m.moved('Home', 2, 3), m.moved('x', 1, 3), m.moved('ArrowDown', 0, 0)]"
    )
    assert pure("search_entries.js", asked) == [
        [
            ["Topics", "t", "1 partition", {"view": "topic", "topic": "t"}],
            ["Brokers", "Broker 2", "h", {"view": "broker", "broker": 2}],
            ["Brokers", "Broker 3", "not alive", {"view": "broker", "broker": 3}],
        ],
        [],
        "2 more topics",
        *(0, 2, 0, 2, 2, 0, 1, -1),
    ]
