"""`logyard reassign` moves replicas of three real brokers, throttled, by requests and by znodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.commands import runner
from tests.support.real_cluster import RealCluster, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def run(cluster: RealCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    logyard = runner(cluster, capsys, monkeypatch)
    return lambda *words, zookeeper=False: logyard("reassign", *words, zookeeper=zookeeper)


@pytest.fixture
def topic(cluster: RealCluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("_", "-")
    admin, orders = cluster.admin(), [[0, 1], [1, 0]]
    # One partition in rising order, one in falling: a cancelled move brings back the order of only one of them.
    admin.create_topics([NewTopic(name, 2, replica_assignment=orders)], operation_timeout=20)[name].result(30)
    # With keys: without one, librdkafka may give a whole burst to one partition, and the other has nothing to move.
    cluster.produce(name, [(str(n).encode(), b"x" * 1000) for n in range(8000)])
    return name


def write(path: Path, topic: str, targets: dict[int, list[int]]) -> str:
    partitions = [{"topic": topic, "partition": p, "replicas": replicas} for p, replicas in targets.items()]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def replicas(cluster: RealCluster, topic: str) -> dict[int, list[int]]:
    return {p: found.replicas for p, found in sorted(cluster.describe(topic).items())}


def shifted(cluster: RealCluster, topic: str) -> dict[int, list[int]]:
    """Every partition moved by one broker."""
    return {p: [(broker + 1) % 3 for broker in before] for p, before in replicas(cluster, topic).items()}


def throttles(cluster: RealCluster, topic: str) -> list[Any]:
    with cluster.zookeeper() as zk:
        paths = [f"/config/topics/{topic}", *(f"/config/brokers/{b}" for b in range(3))]
        return [json.loads(zk.get(path)[0])["config"] for path in paths if zk.exists(path)]


def test_a_throttled_move(run: Any, cluster: RealCluster, topic: str, tmp_path: Path) -> None:
    targets = shifted(cluster, topic)
    file = ("--reassignment-json-file", write(tmp_path / "plan.json", topic, targets))
    status, out, err = run("execute", *file, "--throttle", "20000")
    assert (status, err) == (0, "")
    way_back = json.loads(out.splitlines()[2])
    back_to = {entry["partition"]: entry["replicas"] for entry in way_back["partitions"]}
    assert out.splitlines()[-1] == f"Successfully started partition reassignments for {topic}-0,{topic}-1"
    assert any("leader.replication.throttled.rate" in found for found in throttles(cluster, topic))

    status, _, err = run("execute", *file)
    assert status == 1
    assert "--additional" in err
    assert f"{topic}-0: replicas: " in run("list")[1]
    # A larger throttle for the same move, as one would give while it runs.
    assert run("execute", *file, "--additional", "--throttle", "100000000")[0] == 0

    status, out, err = run("verify", *file, "--wait")
    assert status == 0, (out, err)
    assert f"Reassignment of partition {topic}-0 is completed." in out
    assert not any("throttled" in key for found in throttles(cluster, topic) for key in found)
    eventually(lambda: replicas(cluster, topic) == targets, "moved")

    (tmp_path / "back.json").write_text(json.dumps(way_back))
    back = ("--reassignment-json-file", str(tmp_path / "back.json"))
    assert run("execute", *back, "--throttle", "1000")[0] == 0
    status, out, _ = run("cancel", *back)
    assert (status, "Successfully cancelled partition reassignments" in out) == (0, True)
    assert not any("throttled" in key for found in throttles(cluster, topic) for key in found)
    # The same brokers in the running move's order: a cancelled move has no memory of the first one (KIP-455).
    after = {p: [b for b in back_to[p] + targets[p] if b in targets[p]] for p in targets}
    after = {p: list(dict.fromkeys(order)) for p, order in after.items()}
    eventually(lambda: replicas(cluster, topic) == after, "as before the cancelled move")
    eventually(lambda: cluster.isrs_full(topic), "all in sync")


def test_a_move_by_znodes(run: Any, cluster: RealCluster, topic: str, tmp_path: Path) -> None:
    targets = shifted(cluster, topic)
    file = ("--reassignment-json-file", write(tmp_path / "plan.json", topic, targets))
    assert run("execute", *file, "--throttle", "100000000", zookeeper=True)[0] == 0
    status, out, err = run("verify", *file, "--wait", zookeeper=True)
    assert status == 0, (out, err)
    assert not any("throttled" in key for found in throttles(cluster, topic) for key in found)
    eventually(lambda: replicas(cluster, topic) == targets, "moved")


def test_a_proposal(run: Any, cluster: RealCluster, topic: str, tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    words = ("--topics-to-move-json-file", str(tmp_path / "topics.json"), "--broker-list", "0,1")
    for zookeeper in (False, True):
        status, out, _ = run("generate", *words, zookeeper=zookeeper)
        assert status == 0
        proposed = json.loads(out.splitlines()[-1])["partitions"]
        assert [sorted(entry["replicas"]) for entry in proposed] == [[0, 1], [0, 1]]


def test_replicas_of_a_dead_broker_move_under_a_throttle(
    run: Any, cluster: RealCluster, topic: str, tmp_path: Path
) -> None:
    """The main case of a repair: the source is gone, and cannot be asked for its settings."""
    before = replicas(cluster, topic)
    cluster.cluster.stop_broker(0)
    try:
        eventually(lambda: run("list")[0] == 0, "the others answer")
        eventually(lambda: 0 not in cluster.admin().list_topics(timeout=10).brokers, "broker 0 is gone", 60)
        targets = {p: [2 if broker == 0 else broker for broker in held] for p, held in before.items()}
        file = ("--reassignment-json-file", write(tmp_path / "plan.json", topic, targets))
        status, out, err = run("execute", *file, "--throttle", "50000000")
        assert (status, err) == (0, "")
        assert "broker 0 cannot be asked and got no throttle" in out
        eventually(lambda: replicas(cluster, topic) == targets, "moved", 60)
    finally:
        cluster.cluster.start_broker(0)
    eventually(lambda: 0 in cluster.admin().list_topics(timeout=10).brokers, "broker 0 is back", 60)
    assert run("verify", *file)[0] == 0
    assert not any("throttled" in key for found in throttles(cluster, topic) for key in found)
