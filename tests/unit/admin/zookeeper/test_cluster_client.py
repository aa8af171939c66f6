"""Moves and elections by znodes, against the in-memory ZooKeeper."""

import random

import pytest

from logyard.admin.cluster.snapshot import ConfigValue, PartitionView
from logyard.admin.connector import RealPause
from logyard.admin.reassignment import command
from logyard.admin.reassignment.proposal import propose
from logyard.admin.settings import BadSettings
from logyard.admin.zookeeper.cluster_client import ZooKeeperClusterClient
from logyard.admin.zookeeper.ensemble import KazooEnsemble
from logyard.admin.zookeeper.znodes import KazooZnodes
from logyard.broker.errors import ApiError
from logyard.broker.model import Assignment, TopicPartition
from logyard.broker.znodes.ops import ANY_VERSION, Delete, SetData
from tests.support.memory_records import throttle_owner
from tests.support.tree_znodes import TreeZnodes

T0 = TopicPartition("t", 0)
PLAN = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}'


@pytest.fixture
def znodes() -> TreeZnodes:
    made = TreeZnodes()
    for broker in (1, 2, 3):
        made.broker(broker, rack=f"r{broker}")
    made.topic("t", {0: [1, 2]})
    made.make("/cluster/id", {"version": "1", "id": "yard"})
    made.make("/controller", {"version": 2, "brokerid": 3, "timestamp": "1"})
    return made


@pytest.fixture
def client(znodes: TreeZnodes) -> ZooKeeperClusterClient:
    return ZooKeeperClusterClient(znodes)


def test_a_snapshot(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    znodes.make("/brokers/topics/broken", b"{")
    znodes.topic("going", {0: [1]})
    znodes.make("/admin/delete_topics/going")
    found = client.snapshot(reassignments=True)
    assert (found.cluster_id, found.controller, sorted(found.brokers)) == ("yard", 3, [1, 2, 3])
    assert found.brokers[2].rack == "r2"
    assert list(found.topics) == ["t"]
    assert found.topics["t"].partitions == (PartitionView(0, 1, (1, 2), (1, 2), 0),)
    assert found.reassignments == {}


def test_a_broker_that_one_server_of_zookeeper_does_not_know_is_not_away(
    client: ZooKeeperClusterClient, znodes: TreeZnodes
) -> None:
    """A server that is behind knows neither its registration nor the topics of the last moment."""
    znodes.unheard = {"/brokers/ids/2"}
    assert sorted(client.snapshot().brokers) == [1, 3]
    _, proposed = propose(client, ["t"], [1, 2], minimal=True, chance=random.Random(1))
    assert proposed == {}, "both of its replicas may stay"
    znodes.unheard = {"/brokers/ids/2"}
    command.execute(client, PLAN, owner=throttle_owner(), pause=RealPause(), say=lambda _: None)
    znodes.commit([Delete("/brokers/ids/2")])
    _, proposed = propose(client, ["t"], [1, 2, 3], minimal=True, chance=random.Random(1))
    assert set(proposed[T0]) == {1, 3}


def test_a_move_is_asked_for_once(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    said: list[str] = []
    command.execute(client, PLAN, throttle=10, owner=throttle_owner(), pause=RealPause(), say=said.append)
    assert said[-1] == "Successfully started partition reassignment for t-0"
    assert znodes.content("/admin/reassign_partitions")["partitions"] == [
        {"topic": "t", "partition": 0, "replicas": [2, 3]}
    ]
    assert znodes.content("/config/brokers/2")["config"] == {
        "leader.replication.throttled.rate": "10",
        "follower.replication.throttled.rate": "10",
    }
    assert znodes.content("/config/topics/t")["config"]["follower.replication.throttled.replicas"] == "0:3"
    noted = [znodes.content(f"/config/changes/{n}")["entity_path"] for n in znodes.children("/config/changes") or ()]
    assert noted == ["topics/t", "brokers/1", "brokers/2", "brokers/3"]
    assert client.list_reassignments() == {T0: Assignment((2, 3, 1), (3,), (1,))}
    with pytest.raises(ApiError, match="wait until the controller"):
        client.alter_reassignments({T0: [1]})
    assert not command.verify(client, PLAN, owner=throttle_owner(), pause=RealPause(), say=said.append)


def test_the_end_is_seen_and_throttles_go(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    client.alter_topic_configs("t", {"leader.replication.throttled.replicas": "0:1", "retention.ms": "5"})
    client.alter_broker_configs(1, {"leader.replication.throttled.rate": "10"})
    moved = {"version": 2, "partitions": {"0": [2, 3]}}
    znodes.commit([SetData("/brokers/topics/t", str(moved).replace("'", '"').encode())])
    said: list[str] = []
    assert command.verify(client, PLAN, owner=throttle_owner(), pause=RealPause(), say=said.append)
    assert "Reassignment of partition t-0 is completed." in said[0]
    assert client.topic_configs("t") == {"retention.ms": ConfigValue("5", "DYNAMIC_TOPIC_CONFIG")}
    assert client.broker_configs(1) == {}
    changes = len(znodes.children("/config/changes") or ())
    assert command.verify(client, PLAN, owner=throttle_owner(), pause=RealPause(), say=said.append)
    assert len(znodes.children("/config/changes") or ()) == changes  # nothing was changed, so nothing is noted


def test_a_dead_brokers_throttle_goes_too(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    client.alter_broker_configs(3, {"leader.replication.throttled.rate": "10"})
    znodes.commit([Delete("/brokers/ids/3"), Delete("/brokers/ids/2")])
    assert not command.verify(client, PLAN, owner=throttle_owner(), pause=RealPause(), say=lambda said: None)
    assert client.broker_configs(3) == {}


def test_elections(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    assert client.elect_leaders() == {T0: None}
    assert znodes.content("/admin/preferred_replica_election")["partitions"] == [{"topic": "t", "partition": 0}]
    with pytest.raises(ApiError, match="already requested"):
        client.elect_leaders([T0])
    with pytest.raises(ApiError, match="only preferred elections"):
        client.elect_leaders(unclean=True)


def test_what_only_brokers_can_do(client: ZooKeeperClusterClient) -> None:
    with pytest.raises(ApiError, match="no way to cancel"):
        client.alter_reassignments({T0: None})
    with pytest.raises(ApiError, match="log_dirs need --bootstrap-server"):
        client.alter_replica_log_dirs({("t", 0, 1): "/b"})


def test_who_has_no_settings_left_has_no_znode(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    def change(kind: str, name: str, **values: str) -> None:
        client.alter_entity(kind, name, values, () if values else ["rate"])

    for kind, name in (("users", "u"), ("users", "u/clients/c"), ("users", "u/clients/d"), ("ips", "::1")):
        change(kind, name, rate="1")
    change("users", "u")  # clients are below it
    assert znodes.content("/config/users/u")["config"] == {}
    change("users", "u/clients/c")
    assert znodes.children("/config/users/u/clients") == ["d"]
    change("users", "u/clients/d")
    change("ips", "::1")
    assert (znodes.children("/config/users"), znodes.children("/config/ips")) == ([], [])
    change("users", "nobody")
    assert znodes.children("/config/users") == []
    change("users", "v", rate="1")
    change("users", "v/clients/c", rate="1")
    change("users", "v/clients/c")
    assert znodes.content("/config/users/v")["config"] == {"rate": "1"}  # it has settings of its own
    change("brokers", "1", rate="1")
    change("brokers", "1")
    assert znodes.content("/config/brokers/1")["config"] == {}
    assert len(znodes.children("/config/changes") or ()) == 13


def test_settings_and_their_notification_are_one_step(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    for number, value in enumerate(("1", "2")):
        client.alter_topic_configs("t", {"size": value})
        settings, told = znodes.read(["/config/topics/t", f"/config/changes/config_change_{number:010}"])
        assert settings is not None
        assert told is not None
        assert settings.mzxid == told.czxid


def test_a_setting_that_is_no_number_is_not_set(client: ZooKeeperClusterClient, znodes: TreeZnodes) -> None:
    """As brokers take it: what cannot be read is left out."""
    config = b'{"version":1,"config":{"min.insync.replicas":"two"}}'
    znodes.commit([SetData("/config/topics/t", config, ANY_VERSION)])
    assert client.min_isrs(["t"]) == {"t": 1}


@pytest.mark.parametrize("connect", ["", ":::", "host:99999", "host:port", "host:2181/a/../b"])
def test_an_address_of_zookeeper_that_cannot_be_one(connect: str) -> None:
    for opened in (KazooZnodes, lambda address: KazooEnsemble(address).controller()):
        with pytest.raises(BadSettings, match=r"host:port\[,host:port…\]\[/chroot\] is expected"):
            opened(connect)
