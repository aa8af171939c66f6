"""`logyard configs`: how entities and changes are named, and how it ends."""

from pathlib import Path
from typing import Any

import pytest

from logyard.cli import configs, options
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.tree_znodes import TreeZnodes

THERE = ("--zookeeper", "z:1")


def test_names_belong_to_types_in_the_order_given(run: Any, znodes: TreeZnodes) -> None:
    add = ("--add-config", "producer_byte_rate=5")
    words = ("--entity-type", "clients", "--entity-default", "--entity-type", "users", "--entity-name", "u")
    assert run("configs", "alter", *THERE, *words, *add) == (
        0,
        "Completed updating config for entity: user-principal 'u', default client-id.\n",
        "",
    )
    reversed_ = ("--entity-type", "clients", "--entity-name", "c", "--entity-type", "users", "--entity-default")
    assert run("configs", "alter", *THERE, *reversed_, *add)[0] == 0
    assert sorted(znodes.children("/config/users") or ()) == ["<default>", "u"]
    _, out, _ = run("configs", "describe", *THERE, "--entity-type", "users", "--entity-type", "clients")
    assert out.splitlines() == [
        "Configs for default user-principal, client-id 'c' are producer_byte_rate=5",
        "Configs for user-principal 'u', default client-id are producer_byte_rate=5",
    ]


def test_a_file_of_settings(run: Any, znodes: TreeZnodes, tmp_path: Path) -> None:
    znodes.topic("t", {0: [0]})
    path = tmp_path / "settings"
    path.write_text("retention.ms=5\ncleanup.policy=compact,delete\n")
    assert run("configs", "alter", *THERE, "--topic", "t", "--add-config-file", str(path))[0] == 0
    assert run("configs", "describe", *THERE, "--topic", "t")[1] == (
        "Configs for topic 't' are retention.ms=5,cleanup.policy=compact,delete\n"
    )
    words = ("--topic", "t", "--delete-config", "retention.ms, cleanup.policy")
    assert run("configs", "alter", *THERE, *words) == (0, "Completed updating config for entity: topic 't'.\n", "")
    status, _, err = run("configs", "alter", *THERE, *words)
    assert (status, err) == (1, "logyard: Invalid config(s): retention.ms,cleanup.policy\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe",), "At least one entity type"),
        (("describe", "--topic", "t", "--entity-type", "topics"), "should not be used in conjunction"),
        (("describe", "--topic", "t", "--all"), "--bootstrap-server must be specified for --all"),
        (("alter", "--topic", "t"), "nothing to alter"),
        (("alter", "--topic", "t", "--add-config", "a=1", "--delete-config", "a"), "both set and removed"),
        (("alter", "--topic", "t", "--add-config", "a=1", "--add-config-file", "/x"), "give either"),
        (("alter", "--topic", "t", "--add-config-file", "/none"), "--add-config-file /none: No such file"),
        (("alter", "--user", "u", "--add-config", "retention.ms=1"), "Only quota and SCRAM"),
    ],
)
def test_misuse(run: Any, znodes: TreeZnodes, words: tuple[str, ...], said: str) -> None:
    status, out, err = run("configs", *words, *THERE)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err


@pytest.mark.parametrize("words", [("describe",), ("alter", "--add-config", "num.io.threads=4")])
@pytest.mark.parametrize(("of", "more"), [("--broker", "; give --zookeeper"), ("--broker-logger", "")])
def test_a_broker_that_does_not_run_is_not_waited_for(
    run: Any, yard: MemoryCluster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], of: str, more: str
) -> None:
    monkeypatch.setattr(options, "open_requests", lambda settings: MemoryClient(yard))
    monkeypatch.setattr(configs, "NEWS_S", 0.01)
    status, out, err = run("configs", *words, of, "9", "--bootstrap-server", "b:1")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"logyard: broker 9 does not run; running are 0, 1, 2{more}")
