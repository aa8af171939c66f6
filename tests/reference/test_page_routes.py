"""The page's routes on Apache Kafka without ZooKeeper, whose Metadata names any broker as controller."""

from collections.abc import Iterator

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.connector import RealConnector
from logyard.admin.settings import ClusterSettings
from tests.support import kafka
from tests.support.page_app import PageClient, connections, make_app
from tests.support.real_cluster import eventually

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka.running_kraft(tmp_path_factory.mktemp("kraft") / "node") as address:
        yield address


def test_the_quorums_leader_is_the_controller(bootstrap: str) -> None:
    client = RealConnector().cluster(ClusterSettings.read(bootstrap))
    client.create_topic(NewTopic("page", 3, 1))
    client.close()
    with connections() as known:
        known.add("logyard_default", host=bootstrap)
        app = make_app(connector=RealConnector())
        viewer = PageClient(app)
        overview = viewer.json("/api/overview")
        assert (overview["kind"], overview["controller"]["id"], overview["controller"]["alive"]) == ("kraft", 0, True)
        assert overview["controller"]["epoch"] >= 1
        eventually(lambda: viewer.json("/api/overview")["health"] == "ok", "the topic led")
        topic = eventually(lambda: not (t := viewer.json("/api/topic?name=page"))["pending"] and t, "all of the topic")
        assert topic["problems"] == {}
        assert [partition["end"] for partition in topic["partitions"]] == [0, 0, 0]
        assert viewer.json("/api/reassignments")["running"] is False
        assert viewer.json("/api/groups")["groups"] == []
        sensitive = [c for c in viewer.json("/api/broker?id=0")["configs"] if c["sensitive"]]
        assert sensitive
        assert all(config["value"] is None for config in sensitive)
        for watched in app.state.services.clusters.by_connection().values():
            watched.cache.close()
