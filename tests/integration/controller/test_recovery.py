"""Real brokers that are well, and a recovery that cannot see it: nothing is touched, and it is said why."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from logyard.admin.recovery.case import Expectation, Limits
from logyard.admin.recovery.diagnosis import Finding
from logyard.admin.recovery.recovery import NotRecovered
from tests.support.real_cluster import RealCluster, eventually
from tests.support.recovering import firewall, recover, settings_of

# Less patient than in earnest, and for much longer than that patience.
QUICK = Limits(total_s=8, grace_s=2, probe_s=1)


@pytest.fixture
def untouched(cluster: RealCluster) -> Callable[[], bool]:
    """Whether the brokers, the controller and the journal of recoveries are what they were."""

    def state() -> tuple[object, ...]:
        with cluster.zookeeper() as zk:
            steps = zk.get_children("/logyard/recovery") if zk.exists("/logyard/recovery") else []
            epochs = [zk.get(f"/brokers/ids/{b}")[1].czxid for b in (0, 1, 2)]
        return (cluster.controller(), [b["pid"] for b in cluster.description["brokers"]], epochs, steps)

    before = state()
    return lambda: state() == before


def expected(cluster: RealCluster, protocol: str = "PLAINTEXT") -> Expectation:
    return Expectation(brokers=settings_of(cluster).expected_brokers(), protocol=protocol)


def port_of(cluster: RealCluster, broker: int) -> int:
    return next(int(b["port"]) for b in cluster.description["brokers"] if b["id"] == broker)


def test_a_controller_behind_a_firewall_is_left_alone(cluster: RealCluster, untouched: Callable[[], bool]) -> None:
    holder, _ = cluster.controller()
    with firewall() as wall:
        wall.ports = {port_of(cluster, holder)}
        with pytest.raises(NotRecovered, match=r"works but does not answer from here.*done: nothing"):
            recover(cluster, expected(cluster), limits=QUICK)
    assert untouched()
    assert recover(cluster, expected(cluster)).actions == ()


@pytest.mark.long
def test_a_cluster_behind_a_firewall_is_left_alone(cluster: RealCluster, untouched: Callable[[], bool]) -> None:
    with firewall() as wall:
        wall.ports = {port_of(cluster, broker) for broker in (0, 1, 2)}
        with pytest.raises(NotRecovered, match=r"no broker answers from here.*done: nothing"):
            recover(cluster, expected(cluster), limits=QUICK)
    assert untouched()


@pytest.mark.long
def test_a_refused_login_is_no_sign_of_a_hung_broker(cluster: RealCluster, untouched: Callable[[], bool]) -> None:
    extra = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    with pytest.raises(NotRecovered, match=r"refuse this connection's login or rights.*done: nothing"):
        recover(cluster, expected(cluster, "SASL_PLAINTEXT"), limits=QUICK, settings=settings_of(cluster, **extra))
    assert untouched()


def test_a_zookeeper_of_another_cluster_has_nothing_done(cluster: RealCluster, untouched: Callable[[], bool]) -> None:
    """As where the connection's chroot was edited: there, none of these brokers is registered."""
    elsewhere = f"{str(cluster.description['zookeeper']).split('/')[0]}/another"
    settings = settings_of(cluster, zookeeper=elsewhere)
    with pytest.raises(NotRecovered, match=r"it is alive but not registered.*done: nothing"):
        recover(cluster, expected(cluster), limits=QUICK, settings=settings)
    assert untouched()


@pytest.mark.long
def test_a_controller_that_pauses_comes_back_by_itself(own_cluster: RealCluster) -> None:
    """Longer than its session, as a collector may: another is elected, and the slow one is not ended."""
    holder, epoch = own_cluster.controller()
    pid = next(int(b["pid"]) for b in own_cluster.description["brokers"] if b["id"] == holder)
    os.kill(pid, signal.SIGSTOP)
    waking = threading.Timer(12, os.kill, (pid, signal.SIGCONT))
    waking.start()
    began = time.monotonic()
    result = recover(own_cluster, expected(own_cluster), limits=Limits(total_s=150, grace_s=30, probe_s=2))
    assert (result.actions, result.restarted) == ((), ())
    assert result.finding is Finding.CONTROLLER_HUNG
    assert time.monotonic() - began > 11
    assert own_cluster.controller()[1] > epoch
    assert next(int(b["pid"]) for b in own_cluster.description["brokers"] if b["id"] == holder) == pid


@pytest.mark.long
def test_of_a_cluster_out_of_reach_only_the_dead_are_started(own_cluster: RealCluster) -> None:
    """No broker answers from here; ZooKeeper and the broker's own host say that one is dead."""
    dead = next(b for b in (0, 1, 2) if b != own_cluster.controller()[0])
    pids = {b["id"]: b["pid"] for b in own_cluster.description["brokers"]}
    os.kill(pids[dead], signal.SIGKILL)
    said: list[str] = []
    with firewall() as wall:
        wall.ports = {port_of(own_cluster, broker) for broker in (0, 1, 2)}
        with pytest.raises(NotRecovered, match=rf"done: started broker {dead}$"):
            recover(own_cluster, expected(own_cluster), limits=Limits(total_s=40, grace_s=5, probe_s=1), said=said)
    after = {b["id"]: b["pid"] for b in own_cluster.description["brokers"]}
    assert {b for b in pids if after[b] != pids[b]} == {dead}
    assert [line for line in said if "started" in line] == [f"started broker {dead}"]
    eventually(lambda: recover(own_cluster, expected(own_cluster)).actions == (), "whole")
