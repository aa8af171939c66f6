"""`logyard brokers` by requests, by znodes, and by both."""

import json
from typing import Any

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.tree_znodes import TreeZnodes


def test_by_requests(run: Any, yard: MemoryCluster) -> None:
    MemoryClient(yard).create_topic(NewTopic("t", assignment={0: (0, 1)}, configs={"min.insync.replicas": "2"}))
    status, out, err = run("brokers", "--bootstrap-server", "b:1")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "cluster memory  controller 0  brokers 3  topics 1  partitions 1"
    del yard.sessions[1]
    found = json.loads(run("brokers", "--bootstrap-server", "b:1", "--json")[1])
    assert [(b["id"], b["lives"]) for b in found["brokers"]] == [(0, True), (1, False), (2, True)]
    assert [p["min_isr"] for p in found["under_min_isr"]] == [2]


def test_a_broker_that_does_not_tell_its_bytes_lacks_only_its_own(run: Any, yard: MemoryCluster) -> None:
    MemoryClient(yard).create_topic(NewTopic("t", assignment={0: (0, 1)}))
    yard.sizes = {TopicPartition("t", 0): 7}
    yard.hung = {2}
    _, out, err = run("brokers", "--bootstrap-server", "b:1", "--json")
    assert err == "the bytes of broker 2 are unknown: the cluster did not answer: broker 2 is silent\n"
    assert [broker["bytes"] for broker in json.loads(out)["brokers"]] == [7, 7, None]


def test_by_znodes_and_by_both(run: Any, yard: MemoryCluster, znodes: TreeZnodes) -> None:
    znodes.broker(0, rack="a")
    znodes.make("/brokers/ids/1", b"{", ephemeral=True)
    znodes.topic("t", {0: [0, 2]})
    znodes.make("/controller_epoch", b"6")
    znodes.make("/config/brokers/<default>", {"version": 1, "config": {"min.insync.replicas": "3"}})
    found = json.loads(run("brokers", "--zookeeper", "z:1", "--json")[1])
    assert found["controller_epoch"] == 6
    assert [(b["id"], b["rack"], b["listeners"]) for b in found["brokers"]] == [
        (0, "a", ["PLAINTEXT://h:9092"]),
        (1, None, []),  # it lives, though nobody can read where
        (2, None, None),
    ]
    assert all(isinstance(b["epoch"], int) for b in found["brokers"][:2])
    both = json.loads(run("brokers", "--zookeeper", "z:1", "--bootstrap-server", "b:1", "--json")[1])
    assert (both["cluster_id"], both["controller_epoch"]) == ("memory", 6)


def test_misuse(run: Any) -> None:
    assert run("brokers")[2].startswith("logyard: name the cluster: ")
