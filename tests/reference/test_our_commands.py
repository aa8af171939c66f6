"""Our commands on Apache Kafka's brokers in ZooKeeper mode; what they print is what Kafka's own tools print there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.reference.test_our_dump_log import ours
from tests.support import kafka
from tests.support.commands import Run, runner
from tests.support.real_cluster import RealCluster, eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two brokers of Kafka's with two directories each."""
    kafka.jars_or_skip()
    with kafka.running(tmp_path_factory.mktemp("kafka"), "KK", {"log.dirs": "one,two"}) as running:
        yield running


@pytest.fixture
def run(cluster: RealCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(cluster, capsys, monkeypatch)


def theirs(cluster: RealCluster, tool: str, *words: str) -> list[str]:
    patient = ("--timeout", "60000") if tool == "consumer-groups" else ()  # 5 s there, which a busy machine may exceed
    said = kafka.tool(tool, "--bootstrap-server", cluster.bootstrap, *words, *patient)
    return [line for line in said.splitlines() if not re.match(r"\[?\d{4}-\d\d-\d\d", line)]


def plan(path: Path, topic: str, targets: dict[int, list[int]], dirs: dict[int, list[str]] | None = None) -> str:
    entries = [
        {"topic": topic, "partition": p, "replicas": replicas, **({"log_dirs": dirs[p]} if dirs else {})}
        for p, replicas in targets.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(path)


def test_a_reassignment_is_told_in_the_same_words(run: Run, cluster: RealCluster, tmp_path: Path) -> None:
    topics = ("ours", "them")  # names of one length: the same words have the same places
    for topic in topics:
        cluster.create(topic, partitions=2, replicas=1)
        # Both to the same places, so that what is said of a move can be compared.
        same = plan(tmp_path / f"{topic}.json", topic, {0: [0], 1: [1]})
        assert run("reassign", "execute", "--reassignment-json-file", same)[0] == 0
        assert run("reassign", "verify", "--reassignment-json-file", same, "--wait")[0] == 0
    moved = {topic: plan(tmp_path / f"{topic}.json", topic, {0: [1], 1: [0, 1]}) for topic in topics}
    waiting = ("--wait", "--preserve-throttles")
    status, out, _ = run("reassign", "execute", "--reassignment-json-file", moved["ours"], "--throttle", "9000000")
    assert status == 0
    assert run("reassign", "verify", "--reassignment-json-file", moved["ours"], *waiting)[0] == 0
    words = ("--execute", "--reassignment-json-file", moved["them"], "--throttle", "9000000")
    assert out.replace("ours", "them").splitlines() == theirs(cluster, "reassign-partitions", *words)
    assert run("reassign", "verify", "--reassignment-json-file", moved["them"], *waiting)[0] == 0
    status, out, _ = run("reassign", "verify", "--reassignment-json-file", moved["ours"])
    their = theirs(cluster, "reassign-partitions", "--verify", "--reassignment-json-file", moved["them"])
    assert (status, out.replace("ours", "them").splitlines()) == (0, their)
    status, out, _ = run("reassign", "cancel", "--reassignment-json-file", moved["ours"])
    their = theirs(cluster, "reassign-partitions", "--cancel", "--reassignment-json-file", moved["them"])
    assert (status, out.replace("ours", "them").splitlines()) == (0, their)
    assert run("reassign", "list")[1].splitlines() == theirs(cluster, "reassign-partitions", "--list")

    homes = {broker["id"]: broker["log_dirs"] for broker in cluster.description["brokers"]}
    dirs = plan(tmp_path / "dirs.json", "ours", {0: [1]}, {0: [homes[1][0]]})
    assert run("reassign", "execute", "--reassignment-json-file", dirs)[0] == 0
    assert run("reassign", "verify", "--reassignment-json-file", dirs, "--wait")[0] == 0
    other = plan(tmp_path / "dirs.json", "ours", {0: [1]}, {0: [homes[1][1]]})
    status, out, _ = run("reassign", "execute", "--reassignment-json-file", other)
    assert (
        out.splitlines()[-1]
        == f"Successfully started moving log directory to {homes[1][1]} for replica ours-0 with broker 1 "
    )
    assert run("reassign", "verify", "--reassignment-json-file", other, "--wait")[0] == 0
    status, out, _ = run("reassign", "verify", "--reassignment-json-file", other)
    assert out.splitlines() == theirs(cluster, "reassign-partitions", "--verify", "--reassignment-json-file", other)
    assert "Reassignment of replica ours-0-1 completed successfully." in out


def test_by_znodes(run: Run, cluster: RealCluster, tmp_path: Path) -> None:
    cluster.create("znodes", partitions=1, replicas=1)
    [target] = {0, 1} - set(cluster.describe("znodes")[0].replicas)
    file = ("--reassignment-json-file", plan(tmp_path / "plan.json", "znodes", {0: [target]}))
    assert run("reassign", "execute", *file, "--throttle", "9000000", zookeeper=True)[0] == 0
    assert run("reassign", "verify", *file, "--wait", zookeeper=True)[0] == 0
    eventually(lambda: cluster.describe("znodes")[0].leader == target, "the new leader")
    words = ("leaders", "elect", "--election-type", "preferred", "--topic", "znodes", "--partition", "0")
    assert run(*words, zookeeper=True)[0] == 0
    eventually(lambda: run("zk", "check", zookeeper=True) == (0, "nothing is wrong\n", ""), "nothing wrong", 60)
    found = json.loads(run("brokers", "--json", "--bootstrap-server", cluster.bootstrap, zookeeper=True)[1])
    assert [(b["id"], b["lives"], b["epoch"] > 0) for b in found["brokers"]] == [(0, True, True), (1, True, True)]


def test_settings_are_told_in_the_same_words(run: Run, cluster: RealCluster) -> None:
    cluster.create("settings", partitions=1, replicas=1)
    words: tuple[str, ...]
    pair = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-default")
    for words in (
        ("--topic", "settings", "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]"),
        ("--broker-defaults", "--add-config", "log.cleaner.threads=2"),
        (*pair, "--add-config", "producer_byte_rate=20000000,request_percentage=12.5"),
        ("--user", "bob", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]"),
    ):
        status, out, err = run("configs", "alter", *words)
        assert (status, err) == (0, ""), words
        assert out.splitlines() == theirs(cluster, "configs", "--alter", *words)
    for words in (
        ("--topic", "settings"),
        ("--topic", "settings", "--all"),
        ("--broker", "0", "--all"),
        ("--broker-defaults",),
        pair,
        ("--entity-type", "users"),
    ):
        status, out, err = run("configs", "describe", *words)
        assert (status, err) == (0, ""), words
        assert sorted(out.splitlines()) == sorted(theirs(cluster, "configs", "--describe", *words)), words


def test_groups_and_elections_are_told_in_the_same_words(run: Run, cluster: RealCluster, tmp_path: Path) -> None:
    cluster.create("grouped", partitions=2, replicas=1)
    cluster.produce("grouped", [(str(n).encode(), b"x") for n in range(100)])
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["grouped"])
    assert consumer.consume(50, 30)
    consumer.commit(asynchronous=False)
    words: tuple[str, ...]
    group = ("--group", "readers")
    try:
        for words in (group, (*group, "--members", "--verbose"), (*group, "--state")):
            status, out, _ = run("groups", "describe", *words)
            assert status == 0
            assert rows(out.splitlines()) == rows(theirs(cluster, "consumer-groups", "--describe", *words)), words
    finally:
        consumer.close()
    for named, words in (
        (("list",), ("--list",)),
        (("list", "--state"), ("--list", "--state")),
        (("reset-offsets", *group, "--all-topics", "--to-earliest", "--export"),) * 2,
    ):
        status, out, _ = run("groups", *named)
        asked = words if words[0].startswith("--") else ("--reset-offsets", *words[1:], "--dry-run")
        assert (status, rows(out.splitlines())) == (0, rows(theirs(cluster, "consumer-groups", *asked)))
    assert run("groups", "delete", *group) == (
        0,
        "Deletion of requested consumer groups ('readers') was successful.\n",
        "",
    )
    words = ("--election-type", "preferred", "--topic", "grouped", "--partition", "0")
    assert run("leaders", "elect", *words)[1].splitlines() == theirs(cluster, "leader-election", *words)


def rows(lines: list[str]) -> list[str]:
    """Lines in an order of their own (Kafka's is a hash's), without empty ones and blanks at ends."""
    return sorted(line.rstrip() for line in lines if line.strip())


def test_kafkas_own_files_are_dumped_alike(cluster: RealCluster) -> None:
    directories = [Path(path) for broker in cluster.description["brokers"] for path in broker["log_dirs"]]
    files = [file for root in directories for file in sorted(root.glob("grouped-*/*.log"))]
    assert files
    named = ("--files", ",".join(map(str, files)), "--print-data-log")
    assert ours(*named) == kafka.tool("dump-log", *named).splitlines()
    groups = [file for root in directories for file in sorted(root.glob("__consumer_offsets-*/*.log"))]
    named = ("--files", ",".join(map(str, groups)), "--offsets-decoder")
    found = ours(*named)
    assert any('"protocolType":"consumer"' in line and '"assignedPartitions":[' in line for line in found)
    assert found == kafka.tool("dump-log", *named).splitlines()
