"""`logyard reassign`: options, output, exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment import command
from logyard.local import interrupts
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.tree_znodes import TreeZnodes

HERE = ("--bootstrap-server", "b:1")


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}')
    return str(path)


@pytest.fixture
def topic(yard: MemoryCluster) -> MemoryCluster:
    MemoryClient(yard).create_topic(NewTopic("t", assignment={0: (0, 1)}))
    yard.tick()
    return yard


def test_from_generate_to_verify(run: Any, topic: MemoryCluster, plan: str, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"t"}]}')
    generate = ("reassign", "generate", *HERE, "--topics-to-move-json-file", str(topics), "--broker-list", "1,2")
    status, out, _ = run(*generate, "--minimal")
    assert status == 0
    current, blank, proposed = out.split("\n")[1], out.split("\n")[2], out.split("\n")[4]
    assert out.startswith("Current partition replica assignment\n{")
    assert blank == ""
    assert json.loads(current)["partitions"][0]["replicas"] == [0, 1]
    Path(plan).write_text(proposed)

    file = ("--reassignment-json-file", plan)
    status, out, _ = run("reassign", "execute", *HERE, *file, "--throttle", "5")
    assert (status, out.splitlines()[-1]) == (0, "Successfully started partition reassignment for t-0")
    status, out, _ = run("reassign", "list", *HERE)
    assert out.startswith("Current partition reassignments:\nt-0: replicas: ")
    status, out, err = run("reassign", "verify", *HERE, *file, "--wait")
    assert (status, out.splitlines()[1]) == (0, "Reassignment of partition t-0 is completed.")
    assert "0 of 1 partitions" in err
    assert not any(topic.broker_config.values())
    assert run("reassign", *generate[1:], "--minimal")[2] == "nothing has to move\n"
    assert run("reassign", "list", *HERE) == (0, "No partition reassignments found.\n", "")


def test_cancel_prints_as_kafkas_tool(run: Any, topic: MemoryCluster, plan: str) -> None:
    topic.ticks_to_move = 8
    run("reassign", "execute", *HERE, "--reassignment-json-file", plan)
    assert run("reassign", "cancel", *HERE, "--reassignment-json-file", plan)[1] == (
        "Successfully cancelled partition reassignment for: t-0\n"
        "None of the specified partition moves are active.Clearing broker-level throttles on brokers 0,1,2\n"
        "Clearing topic-level throttles on topic t\n"
    )
    status, out, err = run("reassign", "verify", *HERE, "--reassignment-json-file", plan, "--wait")
    assert (status, err) == (1, "logyard: not every replica is in place: see above, and execute again\n")
    assert "but replica set is 1,0 rather than 1,2." in out


def test_ctrl_c_while_waiting_says_what_goes_on(
    run: Any, topic: MemoryCluster, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("reassign", "execute", *HERE, "--reassignment-json-file", plan, "--throttle", "5")

    def interrupted(*_: object, **__: object) -> None:
        raise interrupts.Interrupted(2)

    monkeypatch.setattr(command, "await_end", interrupted)
    status, out, err = run("reassign", "verify", *HERE, "--reassignment-json-file", plan, "--wait")
    assert (status, out) == (130, "")
    assert err == (
        "interrupted by SIGINT: the move and its throttle continue: verify again until the move is done, or cancel it\n"
    )
    assert topic.broker_config[1]


def test_ctrl_c_before_anything_moves_leaves_no_throttle(
    run: Any, topic: MemoryCluster, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise interrupts.Interrupted(2)

    monkeypatch.setattr(MemoryClient, "alter_reassignments", interrupted)
    status, _, err = run("reassign", "execute", *HERE, "--reassignment-json-file", plan, "--throttle", "5")
    assert (status, err.count("\n")) == (130, 1)
    assert "`logyard reassign list` shows what moves" in err
    assert not any(topic.broker_config.values())
    assert topic.configs["t"] == {}


def test_by_zookeeper(run: Any, znodes: TreeZnodes, plan: str) -> None:
    for broker in (0, 1, 2):
        znodes.broker(broker)
    znodes.topic("t", {0: [0, 1]})
    there = ("--zookeeper", "z:1")
    assert run("reassign", "execute", *there, "--reassignment-json-file", plan)[0] == 0
    assert run("reassign", "list", *there)[1].endswith("t-0: replicas: 1,2,0. adding: 2. removing: 0.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("execute", "--reassignment-json-file", "/none"), "--reassignment-json-file /none: No such file"),
        (("list", "--zookeeper", "z:1"), "name the cluster"),
        (("list", "--command-config", "/none"), "--command-config /none: No such file"),
    ],
)
def test_misuse(run: Any, yard: MemoryCluster, words: tuple[str, ...], said: str) -> None:
    status, out, err = run("reassign", *words, *HERE)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("words", "option", "said"),
    [
        (("execute",), "--reassignment-json-file", "no valid JSON (Expecting"),
        (("verify", "--wait"), "--reassignment-json-file", "no valid JSON (Expecting"),
        (("cancel",), "--reassignment-json-file", "a list 'partitions' is expected"),
        (("generate", "--broker-list", "0"), "--topics-to-move-json-file", "a list 'topics' is expected"),
    ],
)
def test_a_file_that_is_no_plan_is_named_before_any_broker_is_asked(
    run: Any, tmp_path: Path, words: tuple[str, ...], option: str, said: str
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("Proposed partition reassignment configuration\n{}")
    status, out, err = run("reassign", *words, "--bootstrap-server", "127.0.0.1:1", option, str(wrong))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"logyard: {option} {wrong}: ")
    assert said in err
