"""Recovery on Apache Kafka: a controller is known by its work in ZooKeeper; one that hangs is brought back."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from logyard.admin.connector import RealConnector
from logyard.admin.recovery.case import Expectation, Limits, Recovery
from logyard.admin.recovery.diagnosis import Finding
from logyard.admin.recovery.recovery import NotRecovered, Recoverer
from logyard.admin.recovery.witnesses import Queue, Wire
from logyard.admin.zookeeper.ensemble import KazooEnsemble
from tests.support import kafka
from tests.support.real_cluster import RealCluster, eventually
from tests.support.recovering import firewall, settings_of

pytestmark = pytest.mark.timeout(600)

# What systemd's commands do: whether its process runs is all that they tell.
_VERBS = {
    "start": "cluster.start_broker(broker)",
    "stop": "cluster.stop_broker(broker, signal.SIGKILL)",
    "status": "print('active' if cluster.processes.alive(f'broker-{broker}') else 'inactive')",
}


def command(cluster: RealCluster, verb: str) -> list[str]:
    code = "import sys, signal, pathlib; from tests.support import kafka; broker = int(sys.argv[2]); "
    code += f"cluster = kafka.cluster_at(pathlib.Path(sys.argv[1])); {_VERBS[verb]}"
    return [sys.executable, "-c", code, str(cluster.directory), "{broker_id}"]


def recover(cluster: RealCluster, limits: Limits) -> Recovery:
    settings, connector = settings_of(cluster), RealConnector()
    ensemble = connector.ensemble(settings)
    try:
        return Recoverer(
            ensemble=ensemble,
            client=connector.cluster(settings),
            launcher=connector.launcher(*(command(cluster, verb) for verb in ("start", "stop", "status"))),
            pause=connector.pause(),
            say=lambda line: None,
            limits=limits,
            expectation=Expectation(brokers=settings.expected_brokers()),
        ).run()
    finally:
        ensemble.close()


def test_a_controller_takes_away_an_election_of_nothing(cluster: RealCluster) -> None:
    ensemble = KazooEnsemble(str(cluster.description["zookeeper"]))
    try:
        took = []
        for _ in range(5):
            began = time.monotonic()
            assert ensemble.exercise(5.0) is True
            took.append(time.monotonic() - began)
    finally:
        ensemble.close()
    assert min(took) < 1.0
    assert recover(cluster, Limits(total_s=60)).actions == ()


def test_a_controller_behind_a_firewall_is_left_alone(cluster: RealCluster) -> None:
    before = cluster.controller()
    holder = next(b for b in cluster.description["brokers"] if b["id"] == before[0])
    with firewall() as wall:
        wall.ports = {int(holder["port"])}
        with pytest.raises(NotRecovered, match=r"works but does not answer from here.*done: nothing"):
            recover(cluster, Limits(total_s=15, grace_s=4, probe_s=1))
    assert cluster.controller() == before


def test_a_controller_that_hangs_is_brought_back(cluster: RealCluster) -> None:
    holder, epoch = cluster.controller()
    pid = next(int(b["pid"]) for b in cluster.description["brokers"] if b["id"] == holder)
    os.kill(pid, signal.SIGSTOP)
    found = recover(cluster, Limits(total_s=240, grace_s=15, probe_s=3))
    assert found.finding is Finding.CONTROLLER_HUNG
    assert found.restarted == (holder,)
    assert found.epoch_after > epoch


def test_who_may_not_ask_the_controller_touches_nothing(tmp_path: Path) -> None:
    """An authorizer that lets us do all but describe the cluster, and alter it, which would include that."""
    config = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    config["allow.everyone.if.no.acl.found"] = "true"
    with kafka.running(tmp_path / "cluster", "KK", config) as cluster:
        zookeeper = f"zookeeper.connect={cluster.description['zookeeper']}"
        allowed = [word for name in ("ClusterAction", "Create") for word in ("--operation", name)]
        where = ["--authorizer", config["authorizer.class.name"], "--authorizer-properties", zookeeper]
        kafka.tool(
            "kafka.admin.AclCommand", *where, "--add", "--allow-principal", "User:ANONYMOUS", *allowed, "--cluster"
        )
        settings = settings_of(cluster)
        client = RealConnector().cluster(settings)
        holder, epoch = cluster.controller()
        address = {holder: settings.expected_brokers()[holder]}
        found = eventually(
            lambda: (p := client.probe(address, 3.0)[holder]).queue is Queue.FORBIDDEN and p, "it may not ask"
        )
        assert found.wire is Wire.ANSWERS
        client.close()
        # ZooKeeper shows that the controller works: all is well as far as anybody can tell.
        result = recover(cluster, Limits(total_s=60, grace_s=4, probe_s=2))
        assert (result.finding, result.actions) == (Finding.HEALTHY, ())
        assert cluster.controller() == (holder, epoch)
