"""Settings side by side, and the names that fields suggest."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.cluster.translation import configs
from logyard.plugins.logyard_ui.cluster.comparison import compared
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import PageClient

pytestmark = pytest.mark.airflow

STATIC, DEFAULT = "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG"


def test_what_differs_comes_first_then_what_is_set() -> None:
    one = {
        "a.default": ConfigValue("1", DEFAULT, default="1"),
        "b.set": ConfigValue("2", STATIC, default="1"),
        "broker.id": ConfigValue("1", STATIC),
        "c.differs": ConfigValue("3", DEFAULT, default="3"),
        "password": ConfigValue("never shown", STATIC, sensitive=True, default="nor this"),
        "only.here": ConfigValue("x", DEFAULT),
    }
    other = {
        "a.default": ConfigValue("1", DEFAULT, default="1"),
        "b.set": ConfigValue("2", STATIC, default="1"),
        "broker.id": ConfigValue("2", STATIC),
        "c.differs": ConfigValue("4", STATIC, default="3"),
        "password": ConfigValue("another", STATIC, sensitive=True),
    }
    rows = compared([one, None, other])  # the settings of the second are not known
    assert [row["name"] for row in rows] == ["c.differs", "only.here", "broker.id", "b.set", "password", "a.default"]
    named = {row["name"]: row for row in rows}
    assert named["c.differs"] == {
        "name": "c.differs",
        "values": ["3", None, "4"],
        "sources": [DEFAULT, None, STATIC],
        "default": "3",
        "differs": True,
        "own": False,
        "set": True,
        "sensitive": False,
    }
    assert (named["password"]["values"], named["password"]["default"]) == ([None, None, None], None)
    assert [name for name, row in named.items() if row["differs"]] == ["c.differs", "only.here", "broker.id"]
    assert [name for name, row in named.items() if not row["set"]] == ["only.here", "a.default"]


def test_one_alone_differs_from_nothing() -> None:
    assert [row["differs"] for row in compared([{"a": ConfigValue("1", STATIC)}])] == [False]
    assert compared([None, None]) == []


def test_the_default_is_among_the_places_that_a_broker_tells() -> None:
    entry = {"name": "x", "value": "1", "config_source": 4, "read_only": False, "is_sensitive": False}
    told = [SimpleNamespace(value="1", source=4), SimpleNamespace(value="7", source=5)]
    found = [configs([SimpleNamespace(**entry, synonyms=places)])["x"] for places in (told, told[:1], [])]
    assert [(one.source, one.default) for one in found] == [(STATIC, "7"), (STATIC, None), (STATIC, None)]


def test_the_route_compares_topics_and_brokers(viewer: PageClient, cluster: MemoryCluster) -> None:
    cluster.configs["t"]["retention.ms"] = "5"
    cluster.broker_config = {1: {"a": "1"}, 2: {"a": "2"}}
    found = viewer.json("/api/compare?kind=topics&name=t&name=u&name=t")
    assert found["names"] == ["t", "u"]
    assert (found["settings"][0]["name"], found["settings"][0]["values"]) == ("retention.ms", ["5", None])
    found = viewer.json("/api/compare?kind=brokers&name=1&name=2")
    assert [(row["name"], row["values"]) for row in found["settings"]] == [("a", ["1", "2"])]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("kind=topics&name=nowhere", 404),
        ("kind=brokers&name=9", 404),
        ("kind=brokers&name=-1", 404),
        ("kind=brokers&name=%D9%A1", 404),  # a digit, and no id
        ("kind=topics", 422),
        ("kind=groups&name=t", 422),
        ("kind=topics" + "&name=t" * 9, 422),
    ],
)
def test_what_cannot_be_compared(viewer: PageClient, query: str, status: int) -> None:
    assert viewer.answer(f"/api/compare?{query}").status_code == status


def test_a_list_gets_one_more_name(pure: Any) -> None:
    asked = (
        "[m.wantedOf('a, bc', true), m.wantedOf('a, bc', false), m.wantedOf('', true),"
        " m.offered({topics: [{name: 'x'}, {name: 'y'}]}, 'topics', 'x, ', true),"
        " m.offered({topics: [{name: 'x'}]}, 'topics', 'q', true),"
        " m.offered({brokers: [{id: 3}]}, 'brokers', '', false), m.offered({groups: null}, 'groups', '', false),"
        " m.offered(null, 'groups', '', false)]"
    )
    assert pure("suggested_names.js", asked) == ["bc", "a, bc", "", ["x, y"], ["x"], ["3"], [], []]
