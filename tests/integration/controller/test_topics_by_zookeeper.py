"""`logyard topics --zookeeper` against a real ZooKeeper: the znodes it writes and what it shows of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from logyard.cli import main as entry
from logyard.local import interrupts, zookeeper
from logyard.local.java import find_java
from logyard.local.ports import Ports
from logyard.local.processes import Processes

pytestmark = pytest.mark.integration

Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("zk")
    processes = Processes(directory)
    yield f"127.0.0.1:{zookeeper.start(directory, processes, Ports(directory), find_java(directory))}"
    processes.stop_together([zookeeper.NAME])


@pytest.fixture
def client(server: str, tmp_path: Path) -> Iterator[Any]:
    found = KazooClient(server)
    found.start()
    chroot = f"/{tmp_path.name}"
    for path in ("/brokers/topics", "/brokers/ids", "/config/topics", "/config/changes", "/admin/delete_topics"):
        found.ensure_path(chroot + path)
    for broker in range(3):
        registration = {
            "version": 4,
            "host": "h",
            "port": 9092 + broker,
            "endpoints": [f"PLAINTEXT://h:{9092 + broker}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "jmx_port": -1,
            "timestamp": "1",
        }
        found.create(f"{chroot}/brokers/ids/{broker}", json.dumps(registration).encode())
    found.chroot = chroot
    yield found
    found.stop()
    found.close()


@pytest.fixture
def run(server: str, client: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)

    def command(name: str, *arguments: str) -> tuple[int, list[str]]:
        status = entry.main(["topics", name, "--zookeeper", f"{server}{client.chroot}", *arguments])
        captured = capsys.readouterr()
        return status, (captured.out + captured.err).splitlines()

    return command


def read(client: Any, path: str) -> Any:
    return json.loads(client.get(path)[0])


def test_a_topic_from_creation_to_deletion(run: Run, client: Any) -> None:
    made = run("create", "--topic", "flights", "--partitions", "2", "--replication-factor", "3", "--config", "a=b")
    assert made == (0, ["Created topic flights."])
    assert read(client, "/config/topics/flights") == {"version": 1, "config": {"a": "b"}}
    topic = read(client, "/brokers/topics/flights")
    assert sorted(topic["partitions"]) == ["0", "1"]
    assert all(sorted(replicas) == [0, 1, 2] for replicas in topic["partitions"].values())
    assert (topic["version"], topic["adding_replicas"], topic["removing_replicas"]) == (2, {}, {})

    assert run("list") == (0, ["flights"])
    status, lines = run("describe", "--topic", "flights")
    assert status == 0
    assert lines[0] == "Topic: flights\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: a=b"
    assert "\tLeader: none\t" in lines[1]

    assert run("alter", "--topic", "flights", "--partitions", "4", "--config", "c=d", "--delete-config", "a") == (
        0,
        ["Updated config for topic flights.", "Adding partitions succeeded!"],
    )
    assert read(client, "/config/topics/flights")["config"] == {"c": "d"}
    assert len(read(client, "/brokers/topics/flights")["partitions"]) == 4
    changes = client.get_children("/config/changes")
    assert [read(client, f"/config/changes/{name}")["entity_path"] for name in changes] == ["topics/flights"]

    status, lines = run("delete", "--topic", "flights")
    assert (status, lines[0]) == (0, "Topic flights is marked for deletion.")
    assert run("describe", "--topic", "flights")[1][0].endswith("\tMarkedForDeletion: true")
    assert run("delete", "--topic", "flights") == (0, ["Topic flights is already marked for deletion."])


def test_a_placement_by_hand(run: Run, client: Any) -> None:
    assert run("create", "--topic", "t", "--replica-assignment", "2:1,0:2")[0] == 0
    assert read(client, "/brokers/topics/t")["partitions"] == {"0": [2, 1], "1": [0, 2]}
    assert run("alter", "--topic", "t", "--partitions", "3", "--replica-assignment", "2:1,0:2,1:0")[0] == 0
    assert read(client, "/brokers/topics/t")["partitions"]["2"] == [1, 0]


def test_a_state_is_shown(run: Run, client: Any) -> None:
    run("create", "--topic", "t", "--replica-assignment", "2:1")
    state = {"version": 1, "leader": 2, "leader_epoch": 0, "controller_epoch": 1, "isr": [2, 1]}
    client.create("/brokers/topics/t/partitions/0/state", json.dumps(state).encode(), makepath=True)
    assert "\tTopic: t\tPartition: 0\tLeader: 2\tReplicas: 2,1\tIsr: 2,1\t" in run("describe")[1][1]
    assert run("describe", "--under-replicated-partitions") == (0, [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "--topic", "there", "--partitions", "1", "--replication-factor", "1"], "already exists"),
        (["create", "--topic", "a b", "--partitions", "1", "--replication-factor", "1"], "invalid"),
        (["create", "--topic", "x_y", "--partitions", "1", "--replication-factor", "1"], "collides"),
        (["create", "--topic", "t", "--partitions", "1", "--replication-factor", "4"], "larger than available"),
        (["create", "--topic", "t", "--partitions", "1"], "has no defaults"),
        (["alter", "--topic", "there", "--partitions", "1"], "can only be increased"),
        (["alter", "--topic", "none", "--partitions", "2"], "does not exist as expected"),
        (["delete", "--topic", "none"], "does not exist as expected"),
        (["delete", "--topic", "__consumer_offsets"], "internal topic"),
    ],
)
def test_refusals(arguments: list[str], said: str, run: Run) -> None:
    for name in ("there", "x.y", "__consumer_offsets"):
        run("create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
    status, lines = run(*arguments)
    assert status == 1
    assert said in lines[-1]


def test_what_is_missing_can_be_fine(run: Run) -> None:
    wanted = ["--topic", "t", "--partitions", "1", "--replication-factor", "1"]
    assert run("create", *wanted, "--if-not-exists") == (0, ["Created topic t."])
    assert run("create", *wanted, "--if-not-exists") == (0, [])
    assert run("delete", "--topic", "none", "--if-exists") == (0, [])


def test_a_wrong_chroot_is_not_written_to(server: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topic", "t", "--partitions", "1", "--replication-factor", "1"]
    assert entry.main(["topics", "create", "--zookeeper", f"{server}/nowhere", *arguments]) == 1
    assert "check the chroot" in capsys.readouterr().err
    client = KazooClient(server)
    client.start()
    assert client.exists("/nowhere/config") is None
    client.stop()
    client.close()
