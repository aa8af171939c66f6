"""The page's routes on three real brokers and a real ZooKeeper; Airflow's login before them is in this process."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from logyard.admin.connector import RealConnector
from tests.support.page_app import PageClient, connections, make_app
from tests.support.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

RECORDS, LATER = 300, 30


@pytest.fixture
def viewer(cluster: RealCluster) -> Iterator[PageClient]:
    zookeeper = cluster.description["zookeeper"]
    with connections() as known:
        known.add("logyard_default", host=cluster.bootstrap, extra=json.dumps({"zookeeper": zookeeper}))
        app = make_app(connector=RealConnector())
        yield PageClient(app)
        for watched in app.state.services.clusters.by_connection().values():
            watched.cache.close()


def _complete(viewer: PageClient, path: str) -> dict[str, Any]:
    """The answer when nothing of it is pending any more."""

    def there() -> dict[str, Any] | None:
        found = viewer.answer(path)
        return found.json() if found.status_code == 200 and not found.json().get("pending") else None

    content: dict[str, Any] = eventually(there, path)
    return content


def test_what_the_page_says_of_real_brokers(cluster: RealCluster, viewer: PageClient) -> None:
    cluster.create("page-orders", 3, 3, cleanup_policy="compact")
    cluster.produce("page-orders", [(b"%d" % n, b"x" * 100) for n in range(RECORDS)])
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "page-<readers>", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["page-orders"])
    taken = 0
    while taken < RECORDS:
        taken += len(consumer.consume(50, 1.0))
    consumer.commit(asynchronous=False)
    cluster.produce("page-orders", [(b"%d" % n, b"x" * 100) for n in range(LATER)])

    overview = eventually(
        lambda: (
            (f := viewer.json("/api/overview"))["controllers"][0]["epoch"] is not None and f["health"] == "ok" and f
        ),
        "the epoch by ZooKeeper, and every replica in sync",
    )
    assert (overview["kind"], overview["health"], overview["brokers"]["alive"]) == ("zookeeper", "ok", 3)
    assert (overview["controller"]["id"], overview["controller"]["epoch"]) == cluster.controller()

    ids = {str(broker["id"]) for broker in cluster.description["brokers"]}
    topic = _complete(viewer, "/api/topic?name=page-orders")
    assert topic["problems"] == {}
    assert sum(partition["end"] for partition in topic["partitions"]) == RECORDS + LATER
    assert all(set(partition["sizes"]) == ids for partition in topic["partitions"])
    assert topic["bytes"] > 3 * RECORDS * 100
    policy = next(config for config in topic["configs"] if config["name"] == "cleanup.policy")
    assert (policy["value"], policy["override"]) == ("compact", True)

    group = _complete(viewer, "/api/group?name=page-%3Creaders%3E")
    assert (group["state"], len(group["members"]), group["assignor"]) == ("Stable", 1, "range")
    assert group["lag"] == LATER
    assert {row["member_id"] for row in group["partitions"]} == {group["members"][0]["member_id"]}
    consumer.close()

    brokers = _complete(viewer, "/api/brokers")["brokers"]
    assert sum(broker["controller"] for broker in brokers) == 1
    assert all(broker["bytes"] > 0 for broker in brokers)
    broker = _complete(viewer, f"/api/broker?id={brokers[0]['id']}")
    assert broker["log_dirs"][0]["replicas"] >= 3
    assert "log.segment.bytes" in {config["name"] for config in broker["configs"]}
    plan = _complete(viewer, "/api/plan?topic=page-orders&replication_factor=2")
    assert (len(plan["partitions"]), plan["replicas_moved"], plan["running"]) == (3, 0, False)
    costs = {cost["part"]: cost for cost in viewer.json("/api/polls")["polls"]}
    assert costs["snapshot"]["looks"] < costs["snapshot"]["asked"]
    assert all(cost["failures"] == 0 for cost in costs.values())
