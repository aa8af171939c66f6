"""`logyard topics --zookeeper`: the znodes that it writes and shows."""

from typing import Any

import pytest

from logyard.broker.znodes.ops import OpResult, ZkCode
from logyard.cli import options
from tests.support.tree_znodes import TreeZnodes

THERE = ("--zookeeper", "z:1")


@pytest.fixture
def brokers(znodes: TreeZnodes) -> TreeZnodes:
    for broker in range(3):
        znodes.broker(broker)
    return znodes


def test_a_topics_life(run: Any, brokers: TreeZnodes) -> None:
    create = ("topics", "create", *THERE, "--topic", "t", "--replica-assignment", "0:1,1:2")
    assert run(*create, "--config", "retention.ms=5") == (0, "Created topic t.\n", "")
    assert brokers.content("/brokers/topics/t")["partitions"] == {"0": [0, 1], "1": [1, 2]}
    assert brokers.content("/config/topics/t")["config"] == {"retention.ms": "5"}
    assert run(*create)[2] == "logyard: Topic 't' already exists.\n"

    assert run("topics", "alter", *THERE, "--topic", "t", "--partitions", "3")[1] == "Adding partitions succeeded!\n"
    assert set(brokers.content("/brokers/topics/t")["partitions"]) == {"0", "1", "2"}
    alter = ("topics", "alter", *THERE, "--topic", "t", "--config", "cleanup.policy=compact")
    assert run(*alter, "--delete-config", "retention.ms")[1] == "Updated config for topic t.\n"
    assert brokers.content("/config/topics/t")["config"] == {"cleanup.policy": "compact"}
    assert brokers.children("/config/changes") == ["config_change_0000000000"]

    assert run("topics", "list", *THERE)[1] == "t\n"
    assert "marked for deletion" in run("topics", "delete", *THERE, "--topic", "t")[1]
    assert "already marked for deletion" in run("topics", "delete", *THERE, "--topic", "t")[1]
    assert "MarkedForDeletion: true" in run("topics", "describe", *THERE, "--topic", "t")[1]


def test_who_comes_second_leaves_the_settings_of_the_first(
    run: Any, brokers: TreeZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = brokers.commit

    def overtaken(ops: Any) -> list[OpResult]:
        monkeypatch.setattr(brokers, "commit", honest)
        brokers.topic("t", {0: [0]})
        return honest(ops)

    monkeypatch.setattr(brokers, "commit", overtaken)
    create = ("topics", "create", *THERE, "--topic", "t", "--replica-assignment", "0")
    assert run(*create, "--config", "retention.ms=5")[2] == "logyard: Topic 't' already exists.\n"
    assert brokers.content("/config/topics/t")["config"] == {}


def test_many_topics_are_described_by_a_few_batches(
    run: Any, brokers: TreeZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        brokers.topic(f"t{number}", {0: [0, 1], 1: [1, 2]})
    reads = []
    honest = brokers.read
    monkeypatch.setattr(brokers, "read", lambda paths: reads.append(len(paths)) or honest(paths))
    status, out, _ = run("topics", "describe", *THERE)
    assert (status, out.count("PartitionCount: 2")) == (0, 20)
    assert reads == [20, 20, 40]


def test_a_topic_that_somebody_changes_meanwhile_is_left_alone(
    run: Any, brokers: TreeZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic("t", {0: [0, 1]})
    monkeypatch.setattr(brokers, "commit", lambda ops: [OpResult(ZkCode.BAD_VERSION)])
    status, _, err = run("topics", "alter", *THERE, "--topic", "t", "--partitions", "2")
    assert (status, err) == (1, "logyard: topic t was changed meanwhile: check it and try again\n")


def test_what_zookeeper_refuses_is_no_success(run: Any, brokers: TreeZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers.topic("t", {0: [0, 1]})
    monkeypatch.setattr(brokers, "commit", lambda ops: [OpResult(ZkCode.FAILED)])
    status, out, err = run("topics", "delete", *THERE, "--topic", "t")
    assert (status, out) == (1, "")
    assert err == "logyard: ZooKeeper refused to write /admin/delete_topics/t: failed\n"


def test_a_wrong_chroot_is_no_cluster_without_topics(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = TreeZnodes()
    monkeypatch.setattr(elsewhere, "children", lambda path: None)
    monkeypatch.setattr(options, "open_znodes", lambda connect, access: elsewhere)
    assert run("topics", "list", "--zookeeper", "z:1/wrong") == (
        1,
        "",
        "logyard: there is no cluster at z:1/wrong: check the chroot of --zookeeper\n",
    )
