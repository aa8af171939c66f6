"""`logyard zk check`: dry by default, exit status 1 while anything is wrong."""

import json
from typing import Any

import pytest

from tests.support.tree_znodes import TreeZnodes

CHECK = ("zk", "check", "--zookeeper", "z:1", "--settle", "0")


@pytest.fixture
def sound(znodes: TreeZnodes) -> TreeZnodes:
    znodes.broker(0)
    znodes.topic("t", {0: [0]})
    znodes.make("/controller", {"version": 2, "brokerid": 0, "timestamp": "1"}, ephemeral=True)
    znodes.make("/controller_epoch", b"1")
    return znodes


def test_nothing_wrong(run: Any, sound: TreeZnodes) -> None:
    assert run(*CHECK) == (0, "nothing is wrong\n", "")
    assert run(*CHECK, "--json") == (0, "[]\n", "")


def test_told_first_mended_on_demand(run: Any, sound: TreeZnodes) -> None:
    sound.make("/admin/reassign_partitions", b"{")
    status, out, err = run(*CHECK)
    assert (status, err) == (1, "logyard: 1 thing wrong, 1 of them can be fixed with --fix\n")
    assert out.startswith("error: /admin/reassign_partitions (undecodable)\n  wrong:  znode /admin/reassign")
    assert sound.tree.read("/admin/reassign_partitions") is not None
    status, out, err = run(*CHECK, "--fix", "--json")
    assert (status, err) == (0, "")
    assert [one["mended"] for one in json.loads(out)] == [True]
    assert run(*CHECK) == (0, "nothing is wrong\n", "")


def test_what_no_tool_can_mend(run: Any, sound: TreeZnodes) -> None:
    sound.make("/brokers/topics/bad", b"{")
    status, out, err = run(*CHECK, "--fix")
    assert (status, err) == (1, "logyard: 1 thing wrong, none of them can be fixed automatically\n")
    assert "by hand: write it again" in out


@pytest.mark.parametrize("seconds", ["1e999", "3601"])
def test_a_pause_that_has_no_end(run: Any, sound: TreeZnodes, seconds: str) -> None:
    status, _, said = run("zk", "check", "--zookeeper", "z:1", "--settle", seconds)
    assert (status, "up to 3600 seconds are expected" in said) == (1, True)
