"""Controllers that are killed, paused and deposed, and ZooKeeper that goes away, over real processes.

One ensemble is shared under chroots: the cluster of most tests lives in /one, another in /two, neither sees the other.
"""

import json
import os
import signal
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kazoo.client import KazooClient

from logyard.broker.protocol import codec
from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.support.load import Load
from tests.support.real_cluster import RealCluster, eventually
from tests.support.zookeeper import ZooKeeperServer, running_zookeeper
from tests.support.zookeeper_ensemble import running_ensemble

CONFIG = {
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
}
NOT_CONTROLLER, REQUEST_TIMED_OUT = 41, 7
CREATE_TOPICS, DELETE_TOPICS = 19, 20


@contextmanager
def running_cluster(directory: Path, zookeeper: str, brokers: int) -> Iterator[RealCluster]:
    cluster = LocalCluster(directory)
    try:
        cluster.start(Settings(brokers, zookeeper, None, CONFIG))
        yield RealCluster(cluster)
    finally:
        cluster.stop(grace_s=0)  # nobody looks at what a clean stop leaves


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def one(server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers under /one."""
    with running_cluster(tmp_path_factory.mktemp("one"), f"{server.connect}/one", 3) as cluster:
        yield cluster


def name(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def pid_of(cluster: RealCluster, broker: int) -> int:
    return int(next(b["pid"] for b in cluster.description["brokers"] if b["id"] == broker))


def port_of(cluster: RealCluster, broker: int) -> int:
    return int(next(b["port"] for b in cluster.description["brokers"] if b["id"] == broker))


def states(zk: KazooClient, topic: str) -> dict[int, dict[str, Any]]:
    """Every state znode of a topic that there is."""
    parent = f"/brokers/topics/{topic}/partitions"
    if not zk.exists(parent):
        return {}
    found = {}
    for number in zk.get_children(parent):
        if zk.exists(f"{parent}/{number}/state"):
            found[int(number)] = json.loads(zk.get(f"{parent}/{number}/state")[0])
    return found


def another_controller(cluster: RealCluster, before: int, epoch: int) -> tuple[int, int]:
    def look() -> tuple[int, int] | None:
        found = cluster.controller()
        return found if found[0] not in (-1, before) and found[1] > epoch else None

    found: tuple[int, int] = eventually(look, "another controller", 60)
    return found


def create(cluster: RealCluster, topic: str, partitions: int, replicas: int, **config: str) -> None:
    """Create a topic as an administrator does who asks again while controllers change."""

    def ask() -> bool:
        try:
            cluster.create(topic, partitions, replicas, **config)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

    eventually(ask, f"creation of {topic}", 60)


def led_everywhere(cluster: RealCluster, topic: str, partitions: int) -> bool:
    found = cluster.describe(topic)
    return len(found) == partitions and all(p.leader >= 0 and set(p.isrs) == set(p.replicas) for p in found.values())


# Killed between the topic's znode and LeaderAndIsr


@pytest.mark.parametrize("moment", [pytest.param("topic znode", marks=pytest.mark.long), "parent of the partitions"])
def test_a_controller_killed_while_it_makes_a_topic(one: RealCluster, moment: str) -> None:
    """Stopped at once by the watch that sees the znode, looked at, then killed: no broker has heard of the topic."""
    topic, partitions = name("half"), 300
    before, epoch = one.controller()
    pid = pid_of(one, before)
    path = f"/brokers/topics/{topic}" + ("/partitions" if moment != "topic znode" else "")
    stopped = threading.Event()
    with one.zookeeper() as zk:

        def seen(_: object) -> None:
            os.kill(pid, signal.SIGSTOP)
            stopped.set()

        assert zk.exists(path, watch=seen) is None
        ids = [0, 1, 2]
        placement = {str(n): [ids[n % 3], ids[(n + 1) % 3]] for n in range(partitions)}
        zk.create(f"/brokers/topics/{topic}", json.dumps({"version": 1, "partitions": placement}).encode())
        assert stopped.wait(30), "the controller never came so far"
        half_made = len(states(zk, topic))
        heard = sum(bool(one.replica_dirs(topic, n)) for n in range(partitions))
        one.cluster.stop_broker(before, signal.SIGKILL)
        assert heard == 0, f"the brokers had heard of the topic already, {half_made} states were written"
        another_controller(one, before, epoch)
        eventually(lambda: len(states(zk, topic)) == partitions, "states of all partitions", 60)
    one.cluster.start_broker(before)
    eventually(lambda: led_everywhere(one, topic, partitions), "led and in sync on every broker", 60)


# Paused until its session is gone


def exchange_later(port: int, frame: bytes) -> Callable[[], bytes]:
    """Send a request now; the returned function waits for the answer."""
    link = socket.create_connection(("127.0.0.1", port), timeout=60)
    link.sendall(frame)

    def answer() -> bytes:
        with link, link.makefile("rb") as stream:
            (size,) = struct.unpack("!i", stream.read(4))
            return stream.read(size)

    return answer


def create_topics_frame(topic: str, timeout_ms: int = 5000) -> bytes:
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    fields = {"topics": [wanted], "timeout_ms": timeout_ms, "validate_only": False}
    return codec.encode_request(CREATE_TOPICS, 4, 1, "test", fields)


def test_a_paused_controller_comes_back_as_nobody(one: RealCluster) -> None:
    seen, asked = name("seen-while-paused"), name("asked-while-paused")
    before, epoch = one.controller()
    pid = pid_of(one, before)
    os.kill(pid, signal.SIGSTOP)
    try:
        with one.zookeeper() as zk:
            # While its session lasts ZooKeeper sends it this change: it will act on it as soon as it wakes.
            zk.create(f"/brokers/topics/{seen}", json.dumps({"version": 1, "partitions": {"0": [0, 1, 2]}}).encode())
            answer = exchange_later(port_of(one, before), create_topics_frame(asked))
            after, later = another_controller(one, before, epoch)
            eventually(lambda: len(states(zk, seen)) == 1, "made by the new controller", 60)
            made = states(zk, seen)[0]
            assert made["controller_epoch"] == later
            registered = zk.exists(f"/brokers/ids/{before}")
            assert registered is None, "the paused broker counts as dead"
            os.kill(pid, signal.SIGCONT)
            (response,) = codec.decode_response(CREATE_TOPICS, 4, memoryview(answer()))[1].topics
            assert response.error_code == NOT_CONTROLLER
            eventually(lambda: zk.exists(f"/brokers/ids/{before}"), "registered in a new session", 60)
            eventually(lambda: led_everywhere(one, seen, 1), "caught up", 60)
            assert zk.exists(f"/brokers/topics/{asked}") is None
            assert states(zk, seen)[0]["controller_epoch"] == later, "the zombie wrote nothing"
            assert one.controller() == (after, later)
    finally:
        os.kill(pid, signal.SIGCONT)


# Deposed by hand


def test_deleting_the_controller_znode_elects_anew_each_time(one: RealCluster) -> None:
    for _ in range(3):
        _, epoch = one.controller()
        with one.zookeeper() as zk:
            zk.delete("/controller")
        eventually(lambda e=epoch: (c := one.controller())[0] >= 0 and c[1] > e, "a controller", 30)
    topic = name("after-depositions")
    create(one, topic, 3, 3)
    eventually(lambda: led_everywhere(one, topic, 3), "led")


# Without ZooKeeper


def test_counters_that_are_deleted_go_on_where_they_were(one: RealCluster) -> None:
    """/controller_epoch and /latest_producer_id_block: no epoch and no producer id is used twice."""
    topic, planted, ids = name("counted"), name("planted"), brokers_of(one)
    create(one, topic, 1, 3)
    with one.zookeeper() as zk:
        for _ in range(3):
            _, epoch = one.controller()
            zk.delete("/controller")
            eventually(lambda e=epoch: (c := one.controller())[0] >= 0 and c[1] > e, "a controller", 30)
        _, epoch = one.controller()
        one.produce(topic, [(b"k", b"v")], **{"enable.idempotence": True})
        block = int(json.loads(zk.get("/latest_producer_id_block")[0])["block_end"])
        zk.delete("/controller_epoch")
        zk.delete("/latest_producer_id_block")
        zk.create(f"/brokers/topics/{planted}", json.dumps({"version": 1, "partitions": {"0": ids}}).encode())
        eventually(lambda: states(zk, planted), "the planted topic has a state", 60)
        assert states(zk, planted)[0]["controller_epoch"] > epoch
        assert one.controller()[1] > epoch
        for broker in ids:
            one.cluster.stop_broker(broker, signal.SIGTERM)  # whoever has a block of producer ids loses it
            one.cluster.start_broker(broker)
            eventually(lambda: one.isrs_full(planted) and one.isrs_full(topic), "in sync", 60)
        assert len(one.produce(planted, [(b"k", b"v")], **{"enable.idempotence": True})) == 1
        assert int(json.loads(zk.get("/latest_producer_id_block")[0])["block_start"]) > block


def test_zookeeper_goes_and_comes_back_under_load(one: RealCluster, server: ZooKeeperServer) -> None:
    topic = name("load")
    create(one, topic, 3, 3, min_insync_replicas="2")
    load = Load(one, topic)
    load.start()
    eventually(lambda: len(load.acknowledged) > 200, "load runs")
    server.stop()
    time.sleep(8)  # longer than a session: nobody can know meanwhile who would have lost it
    during = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > during + 200, "what needs no ZooKeeper goes on without it")
    server.start()
    eventually(lambda: one.controller()[0] >= 0, "a controller", 60)
    second = name("after-the-outage")
    create(one, second, 3, 3)
    eventually(lambda: led_everywhere(one, second, 3) and led_everywhere(one, topic, 3), "all in sync", 60)
    load.stop()
    assert load.lost() == {}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_zookeeper_is_away_for_two_minutes(tmp_path: Path) -> None:
    """Twenty sessions long. A broker that dies meanwhile is missed only afterwards; all else comes back by itself.

    ZooKeeper counts a session's time only while it runs: who is quick after its start goes on in the session it had.
    """
    with (
        running_zookeeper(tmp_path / "zookeeper") as away,
        running_cluster(tmp_path / "cluster", f"{away.connect}/away", 3) as cluster,
    ):
        topic = name("load")
        create(cluster, topic, 3, 3, min_insync_replicas="2")
        load = Load(cluster, topic, **{"message.timeout.ms": 600_000})
        load.start()
        eventually(lambda: len(load.acknowledged) > 200, "load runs")
        controller, epoch = cluster.controller()
        with cluster.zookeeper() as zk:
            registered = {b: zk.get(f"/brokers/ids/{b}")[1].czxid for b in (0, 1, 2)}
        away.stop()
        time.sleep(60)
        killed = (controller + 1) % 3
        os.kill(pid_of(cluster, killed), signal.SIGKILL)
        time.sleep(60)
        away.start()
        alive = [b for b in (0, 1, 2) if b != killed]
        eventually(lambda: set(brokers_of(cluster)) == set(alive), "who lives is registered, who died is not", 60)
        with cluster.zookeeper() as zk:
            assert all(zk.get(f"/brokers/ids/{b}")[1].czxid >= registered[b] for b in alive)
        eventually(lambda: cluster.controller()[0] in alive and cluster.controller()[1] >= epoch, "a controller", 60)
        during = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > during + 500, "what was sent meanwhile goes through", 60)
        cluster.cluster.start_broker(killed)
        eventually(lambda: led_everywhere(cluster, topic, 3), "all in sync", 60)
        load.stop()
        assert load.lost() == {}


def brokers_of(cluster: RealCluster) -> list[int]:
    with cluster.zookeeper() as zk:
        return [int(broker) for broker in zk.get_children("/brokers/ids")]


def test_two_clusters_share_an_ensemble(one: RealCluster, server: ZooKeeperServer, tmp_path: Path) -> None:
    with running_cluster(tmp_path / "two", f"{server.connect}/two", 1) as two:
        first, second = name("in-one"), name("in-two")
        create(one, first, 1, 1)
        create(two, second, 1, 1)

        def topics(cluster: RealCluster) -> set[str]:
            return set(cluster.admin().list_topics(timeout=10).topics)

        # Any broker may be asked, and one that is neither controller nor leader hears of a topic later.
        eventually(lambda: first in topics(one) and second in topics(two), "each cluster's own topic")
        seen = [topics(cluster) for cluster in (one, two)]
        assert first not in seen[1]
        assert second not in seen[0]
        assert two.controller() == (0, 1)
        _, epoch = one.controller()
        assert two.cluster.stop()
    assert one.controller()[1] == epoch, "the other's end is no event here"


def test_an_ensemble_loses_its_leader_under_load(tmp_path: Path) -> None:
    with (
        running_ensemble(tmp_path / "ensemble") as ensemble,
        running_cluster(tmp_path / "cluster", f"{ensemble.connect}/logyard", 3) as cluster,
    ):
        topic = name("load")
        create(cluster, topic, 3, 3, min_insync_replicas="2")
        load = Load(cluster, topic)
        load.start()
        eventually(lambda: len(load.acknowledged) > 200, "load runs")
        before = cluster.controller()
        ensemble.kill(ensemble.leader)
        eventually(lambda: any(ensemble.part(n) == "leader" for n in ensemble.ports), "the ensemble leads itself", 60)
        second = name("after-the-leader")
        create(cluster, second, 3, 3)
        eventually(lambda: led_everywhere(cluster, second, 3) and led_everywhere(cluster, topic, 3), "in sync", 60)
        assert cluster.controller()[1] >= before[1]
        load.stop()
        assert load.lost() == {}


# Time-outs


def test_a_time_out_does_not_stop_what_was_asked(one: RealCluster) -> None:
    """CreateTopics and DeleteTopics with no time at all are answered 7 and go on; the name is free again at once."""
    topic = name("timed-out")
    for _ in range(2):
        controller = one.controller()[0]
        assert ask_create(port_of(one, controller), topic) == REQUEST_TIMED_OUT
        eventually(lambda: topic in one.admin().list_topics(timeout=10).topics, "made all the same")
        eventually(lambda: led_everywhere(one, topic, 1), "led")
        fields = {"topic_names": [topic], "timeout_ms": 0}
        frame = codec.encode_request(DELETE_TOPICS, 4, 1, "test", fields)
        answer = exchange_later(port_of(one, controller), frame)()
        (response,) = codec.decode_response(DELETE_TOPICS, 4, memoryview(answer))[1].responses
        assert response.error_code == REQUEST_TIMED_OUT
        with one.zookeeper() as zk:
            # The request is the last of its znodes to go.
            request = f"/admin/delete_topics/{topic}"
            eventually(lambda zk=zk, path=request: not zk.exists(path), "gone all the same")
            assert not zk.exists(f"/brokers/topics/{topic}")
            assert not zk.exists(f"/config/topics/{topic}")


def ask_create(port: int, topic: str) -> int:
    answer = exchange_later(port, create_topics_frame(topic, 0))()
    (response,) = codec.decode_response(CREATE_TOPICS, 4, memoryview(answer))[1].topics
    return int(response.error_code)
