"""Three brokers at levels of the past: what a cluster does that is being upgraded, over real processes.

Below 2.7-IV2 leaders write their ISR into ZooKeeper themselves, below 3.0 brokers take producer ids there, below 2.8
topics have no ids, and LeaderAndIsr, UpdateMetadata, StopReplica and ControlledShutdown have their old shapes.
"""

import json
import signal
from pathlib import Path

import pytest

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.support.load import Load
from tests.support.real_cluster import RealCluster, eventually

CONFIG = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", ["2.4-IV1", "0.11.0"])
def test_a_cluster_at_an_old_level_moves_replicas_and_loses_its_controller(level: str, tmp_path: Path) -> None:
    own = LocalCluster(tmp_path / "cluster")
    try:
        own.start(Settings(3, None, None, {**CONFIG, "inter.broker.protocol.version": level}))
        _work(RealCluster(own))
    finally:
        own.stop()


def _work(cluster: RealCluster) -> None:
    cluster.create("past", 3, 2, min_insync_replicas="1")
    load = Load(cluster, "past")  # idempotent: its producer id comes out of ZooKeeper
    load.start()
    eventually(lambda: len(load.acknowledged) > 100, "load runs")
    with cluster.zookeeper() as zk:
        block = json.loads(zk.get("/latest_producer_id_block")[0])
        assert (block["block_start"], block["block_end"]) == ("0", "999")
        assert "topic_id" not in json.loads(zk.get("/brokers/topics/past")[0])

    _move(cluster, TopicPartition("past", 0), (2, 1, 0))
    before, epoch = cluster.controller()
    cluster.cluster.stop_broker(before, signal.SIGKILL)
    eventually(lambda: cluster.controller()[0] not in (-1, before), "another controller")
    assert cluster.controller()[1] > epoch
    during = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > during + 100, "load goes on without the first controller")
    cluster.cluster.start_broker(before)
    eventually(lambda: cluster.isrs_full("past"), "all in sync again")

    leaving = next(broker for broker in (0, 1, 2) if broker != before)
    assert cluster.cluster.stop_broker(leaving), "a controlled shutdown, in its old version"
    during = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > during + 100, "load goes on without who left")
    load.stop()
    assert load.lost() == {}


def _move(cluster: RealCluster, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    client = KafkaClusterClient(ClusterSettings.read(cluster.bootstrap, {}))
    try:
        assert client.alter_reassignments({tp: replicas}) == {tp: None}
        eventually(lambda: tuple(cluster.describe(tp.topic)[tp.partition].replicas) == replicas, "moved")
        eventually(lambda: cluster.isrs_full(tp.topic), "all in sync")
    finally:
        client.close()
