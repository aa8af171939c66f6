"""`logyard leaders elect`: what it takes and how it ends."""

from pathlib import Path
from typing import Any

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.tree_znodes import TreeZnodes

ELECT = ("leaders", "elect", "--bootstrap-server", "b:1", "--election-type")


def test_the_ways_to_name_partitions(run: Any, yard: MemoryCluster, tmp_path: Path) -> None:
    MemoryClient(yard).create_topic(NewTopic("t", assignment={0: (0, 1)}))
    yard.tick()
    path = tmp_path / "partitions.json"
    path.write_text('{"partitions":[{"topic":"t","partition":0}]}')
    said = "Valid replica already elected for partitions t-0\n"
    assert run(*ELECT, "preferred", "--topic", "t", "--partition", "0") == (0, said, "")
    assert run(*ELECT, "PREFERRED", "--path-to-json-file", str(path)) == (0, said, "")
    assert run(*ELECT, "preferred", "--all-topic-partitions") == (0, said, "")


def test_a_refusal_is_status_1(run: Any, yard: MemoryCluster) -> None:
    MemoryClient(yard).create_topic(NewTopic("t", assignment={0: (0, 1)}))
    yard.tick()
    state = next(iter(yard.states.values()))
    yard.states[next(iter(yard.states))] = state.__class__(1, 1, (1,), 1)
    status, out, err = run(*ELECT, "preferred", "--all-topic-partitions")
    assert (status, err) == (1, "logyard: 1 replica(s) could not be elected\n")
    assert out.startswith("Error completing leader election (PREFERRED) for partition: t-0: ")


def test_by_zookeeper(run: Any, znodes: TreeZnodes) -> None:
    znodes.topic("t", {0: [0, 1]})
    words = ("leaders", "elect", "--zookeeper", "z:1", "--election-type", "preferred", "--all-topic-partitions")
    assert run(*words) == (0, "Successfully asked for leader election (PREFERRED) of partitions t-0\n", "")
    status, _, err = run(*words)
    assert status == 1
    assert "already requested" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "One and only one"),
        (("--topic", "t", "--all-topic-partitions"), "One and only one"),
        (("--topic", "t"), "Missing required option(s): partition"),
        (("--all-topic-partitions", "--partition", "0"), "only allowed if topic is used"),
    ],
)
def test_misuse(run: Any, yard: MemoryCluster, words: tuple[str, ...], said: str) -> None:
    status, out, err = run(*ELECT, "preferred", *words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err


def test_a_file_that_names_no_partitions_is_named(run: Any, yard: MemoryCluster, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text("{")
    status, out, err = run(*ELECT, "preferred", "--path-to-json-file", str(path))
    assert (status, out) == (1, "")
    assert err.startswith(f"logyard: --path-to-json-file {path}: ")
