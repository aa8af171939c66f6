"""The commands that show and change a cluster, on three real brokers: brokers, leaders, configs."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from logyard.admin import story
from logyard.cli import main as entry
from tests.support.commands import runner
from tests.support.real_cluster import RealCluster, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def run(cluster: RealCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return runner(cluster, capsys, monkeypatch)


def test_brokers_by_requests_and_znodes(run: Any, cluster: RealCluster) -> None:
    cluster.create("counted", partitions=3, replicas=3, min_insync_replicas="2")
    cluster.produce("counted", [(None, b"x" * 100) for _ in range(300)])
    where = ("--zookeeper", str(cluster.description["zookeeper"]))
    status, out, err = run("brokers", "--json", *where)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["controller"], found["controller_epoch"]) == cluster.controller()
    assert [broker["id"] for broker in found["brokers"]] == [0, 1, 2]
    for broker in found["brokers"]:
        assert broker["bytes"] > 0
        assert broker["replicas"] >= 3
        with cluster.zookeeper() as zk:
            assert broker["epoch"] == zk.exists(f"/brokers/ids/{broker['id']}").czxid
        assert broker["listeners"][0].endswith(broker["address"])
    assert found["offline"] == []
    lines = run("brokers")[1].splitlines()
    assert lines[1].split() == [
        "BROKER",
        "ADDRESS",
        "RACK",
        "EPOCH",
        "LEADERS",
        "PREFERRED",
        "REPLICAS",
        "OUT-OF-SYNC",
        "BYTES",
    ]
    assert [line.split()[0] for line in lines[2:5]] == ["0", "1", "2"]


def test_leaders_go_back_to_the_preferred(run: Any, cluster: RealCluster) -> None:
    cluster.create("elected", partitions=1, replicas=3)
    preferred, *others = cluster.describe("elected")[0].replicas
    # Another order of the same replicas: the leader stays, and is the preferred one no longer.
    from tests.integration.commands.test_commands_reassign import write

    path = cluster.directory / "order.json"
    order = [*others, preferred]
    assert run("reassign", "execute", "--reassignment-json-file", write(path, "elected", {0: order}))[0] == 0
    eventually(lambda: cluster.describe("elected")[0].replicas == order, "the new order")
    one = ("--election-type", "preferred", "--topic", "elected", "--partition", "0")
    status, out, _ = run("leaders", "elect", *one)
    assert (status, out) in (
        (0, "Successfully completed leader election (PREFERRED) for partitions elected-0\n"),
        (0, "Valid replica already elected for partitions elected-0\n"),
    )
    eventually(lambda: cluster.describe("elected")[0].leader == order[0], "the preferred leader")
    assert run("leaders", "elect", *one) == (0, "Valid replica already elected for partitions elected-0\n", "")
    status, out, err = run("leaders", "elect", "--election-type", "preferred", "--topic", "none", "--partition", "0")
    assert (status, err) == (1, "logyard: 1 replica(s) could not be elected\n")
    assert out.startswith("Error completing leader election (PREFERRED) for partition: none-0: ")
    assert run("leaders", "elect", "--election-type", "unclean", "--all-topic-partitions")[0] == 0


def test_settings_of_topics_and_brokers(run: Any, cluster: RealCluster) -> None:
    cluster.create("configured", partitions=1, replicas=3)
    topic = ("--topic", "configured")
    added = run("configs", "alter", *topic, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    assert added == (0, "Completed updating config for topic configured.\n", "")

    # Whoever is asked has to have heard of it: settings come by ZooKeeper's watches, as in Kafka.
    def heard() -> str:
        out = str(run("configs", "describe", *topic)[1])
        return out if "retention.ms=5000" in out else ""

    lines = eventually(heard, "the topic's new settings").splitlines()
    assert lines[0] == "Dynamic configs for topic configured are:"
    assert lines[1].startswith("  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    assert lines[2].startswith("  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000")
    assert len(run("configs", "describe", *topic, "--all")[1].splitlines()) > 20
    assert run("configs", "alter", *topic, "--delete-config", "retention.ms")[0] == 0
    refused = (1, "", "logyard: Invalid config(s): retention.ms\n")
    again = ("configs", "alter", *topic, "--delete-config", "retention.ms")
    eventually(lambda: run(*again) == refused, "what is not set cannot be deleted")
    assert run("configs", "alter", *topic, "--add-config", "retention.ms=soon")[0] == 1
    assert run("configs", "describe", *topic, zookeeper=True)[1] == (
        "Configs for topic 'configured' are cleanup.policy=compact,delete\n"
    )

    for entity, updated in (
        (("--broker", "1"), "Completed updating config for broker 1.\n"),
        (("--broker-defaults",), "Completed updating default config for brokers in the cluster.\n"),
    ):
        assert run("configs", "alter", *entity, "--add-config", "log.cleaner.threads=2") == (0, updated, "")
        line = "  log.cleaner.threads=2 sensitive=false"
        eventually(lambda e=entity, li=line: li in run("configs", "describe", *e)[1], "the brokers' new setting")
        assert run("configs", "alter", *entity, "--delete-config", "log.cleaner.threads") == (0, updated, "")
    out = run("configs", "describe", "--entity-type", "brokers")[1]
    assert "Default configs for brokers in the cluster are:" in out


def test_quotas(run: Any) -> None:
    pair = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-default")
    assert run("configs", "alter", *pair, "--add-config", "producer_byte_rate=20000000")[0] == 0
    said = "Quota configs for user-principal 'ann', the default client-id are producer_byte_rate=2.0E7\n"
    eventually(lambda: run("configs", "describe", *pair) == (0, said, ""), "the quota")
    assert run("configs", "describe", "--entity-type", "users", "--entity-type", "clients")[1] == said
    assert run("configs", "alter", *pair, "--delete-config", "producer_byte_rate")[0] == 0
    eventually(lambda: run("configs", "describe", *pair) == (0, "", ""), "no quota")


def test_znodes_are_checked_and_mended(run: Any, cluster: RealCluster) -> None:
    cluster.create("checked", partitions=2, replicas=3)

    def sound() -> bool:
        assert run("zk", "check", zookeeper=True) == (0, "nothing is wrong\n", "")
        return True

    eventually(sound, "a sound cluster")
    with cluster.zookeeper() as zk:
        # In its turn: Kafka's brokers pass over whatever has a lower number than what they have seen.
        garbage = zk.create("/config/changes/config_change_", b"?", sequence=True)
        before = zk.get("/brokers/topics/checked/partitions/1/state")
        zk.set("/brokers/topics/checked/partitions/1/state", b"{")
        status, out, err = run("zk", "check", zookeeper=True)
        assert (status, err) == (1, "logyard: 2 things wrong, 1 of them can be fixed with --fix\n")
        assert "error: /brokers/topics/checked/partitions/1/state (undecodable)" in out
        assert zk.exists(garbage)
        status, out, _ = run("zk", "check", "--fix", zookeeper=True)
        assert status == 1
        assert "\n  mended\n" in out
        assert not zk.exists(garbage)
        zk.set("/brokers/topics/checked/partitions/1/state", before[0])
    eventually(lambda: run("zk", "check", zookeeper=True)[0] == 0, "a sound cluster again")


def test_groups_from_the_first_look_to_the_end(run: Any, cluster: RealCluster) -> None:
    cluster.create("grouped", partitions=2, replicas=3)
    cluster.produce("grouped", [(str(n).encode(), b"x") for n in range(100)])
    ends = dict.fromkeys((0, 1), 0)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["grouped"])
        for message in (consumer.consume(100, 20) or [])[:100]:
            ends[message.partition()] = message.offset() + 1
        consumer.commit(asynchronous=False)
        assert "readers" in run("groups", "list")[1].splitlines()
        assert "readers" in run("groups", "list", "--states", "Stable")[1]
        status, out, err = run("groups", "describe", "--group", "readers")
        assert (status, err) == (0, "")
        rows = [line.split() for line in out.splitlines()[2:]]
        assert [(row[1], int(row[2]), int(row[3]), row[5], row[8]) for row in rows] == [
            ("grouped", p, ends[p], "0", "reader") for p in (0, 1)
        ]
        members = run("groups", "describe", "--group", "readers", "--members", "--verbose")[1]
        assert members.splitlines()[2].endswith(" (0,1)")
        assert " Stable " in run("groups", "describe", "--group", "readers", "--state")[1]
        status, _, err = run("groups", "reset-offsets", "--group", "readers", "--all-topics", "--to-earliest")
        assert (status, "the current state is Stable" in err) == (1, True)
        assert run("groups", "delete", "--group", "readers")[0] == 1
    finally:
        consumer.close()

    reset = ("groups", "reset-offsets", "--group", "readers")
    status, out, _ = run(*reset, "--topic", "grouped:0", "--to-offset", "3")
    assert (status, out.splitlines()[2].split()) == (0, ["readers", "grouped", "0", "3"])
    status, out, _ = run("groups", "describe", "--group", "readers")
    assert [int(line.split()[3]) for line in out.splitlines()[2:]] == [ends[0], ends[1]]  # it was only shown
    assert run(*reset, "--topic", "grouped:0", "--to-offset", "3", "--execute")[0] == 0
    status, out, err = run("groups", "describe", "--group", "readers")
    assert [int(line.split()[3]) for line in out.splitlines()[2:]] == [3, ends[1]]
    assert err == "\nConsumer group 'readers' has no active members.\n"
    assert run(*reset, "--all-topics", "--to-datetime", "2020-01-01T00:00:00.000", "--export") == (
        0,
        "grouped,0,0\ngrouped,1,0\n",
        "",
    )
    later = run(*reset, "--all-topics", "--to-datetime", "2100-01-01T00:00:00.000", "--export")
    assert later[1] == f"grouped,0,{ends[0]}\ngrouped,1,{ends[1]}\n"
    assert later[2].count("Falling back to latest known offset.") == 2
    assert run("groups", "delete-offsets", "--group", "readers", "--topic", "grouped:1")[0] == 0
    assert len(run("groups", "describe", "--group", "readers")[1].splitlines()) == 3
    gone = (0, "Deletion of requested consumer groups ('readers') was successful.\n", "")
    assert run("groups", "delete", "--group", "readers") == gone
    status, _, err = run("groups", "describe", "--group", "readers")
    assert (status, err) == (1, "logyard: Consumer group 'readers' does not exist.\n")


def test_a_topic_has_a_story_from_the_request_to_every_disk(run: Any, cluster: RealCluster) -> None:
    cluster.create("storied", partitions=2, replicas=3)
    where = ("--dir", str(cluster.directory))

    def told() -> Any:
        status = entry.main(["story", "storied", "--json", *where])
        return status == 0

    eventually(told, "the story")
    found = story.story(
        [line for log in logs(cluster) for line in story.parse(log.read_text().splitlines())], "storied"
    )
    kinds = {chapter.kind: chapter for chapter in found}
    assert "CreateTopics" in kinds
    done = kinds["TopicsChanged"].done
    made = {(line.broker, partition) for line in done for partition in line.fields.get("made", "").split("'")[1::2]}
    assert made == {(broker, "storied-0..1") for broker in range(3)}
    assert {line.broker for line in done if line.what == "UpdateMetadata"} == {0, 1, 2}


def logs(cluster: RealCluster) -> list[Path]:
    return sorted((cluster.directory / "logs").glob("broker-*.log"))


def test_zookeepers_port_and_another_protocol_are_told_soon(
    run: Any, cluster: RealCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    zookeeper = str(cluster.description["zookeeper"]).partition("/")[0]
    (tmp_path / "tls.properties").write_text("security.protocol=SSL\n")
    begun = time.monotonic()
    assert entry.main(["topics", "list", "--bootstrap-server", zookeeper]) == 1
    told = f"{zookeeper} (it is a ZooKeeper: the port of a broker is expected)"
    assert capsys.readouterr().err == f"logyard: no broker answered: {told}\n"
    status, _, err = run("topics", "list", "--command-config", str(tmp_path / "tls.properties"))
    assert (status, err.count("\n")) == (1, 1)
    assert err.endswith("(it speaks Kafka's protocol without TLS: its security protocol is PLAINTEXT, not SSL)\n")
    assert time.monotonic() - begun < 20


def test_what_brokers_refuse_without_a_text_is_told_in_words(run: Any) -> None:
    status, _, err = run("groups", "delete", "--group", "nobody")
    assert status == 1
    assert err.endswith(": Group 'nobody' could not be deleted due to: the group does not exist\n")
