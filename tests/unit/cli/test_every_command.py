"""Every command that talks to brokers or to ZooKeeper can log in there: the file with the log-in acts in each of them.

A file that is missing is the proof: the command's one line names it, before anything is asked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from logyard.cli import main as entry
from logyard.cli.users import VARIABLE
from logyard.local import interrupts

BROKERS, ZOOKEEPER = ("--bootstrap-server", "--command-config"), ("--zookeeper", "--zk-tls-config-file")
# `cluster start --zookeeper` uses a ZooKeeper as it is: the launcher itself only reads there.
WITHOUT = {("cluster start", "--zookeeper")}
PLAN = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'
VALUES = {
    "--topics-to-move-json-file": '{"version":1,"topics":[{"topic":"t"}]}',
    "--reassignment-json-file": PLAN,
    "--broker-list": "1",
    "--entity-type": "topics",
    "--election-type": "preferred",
    "--feature": "transaction.version=1",
    "--start-offset": "0",
    "--partition": "0",
    "--mechanism": "SCRAM-SHA-256",
}
# What a command wants besides its required options.
MORE: dict[str, tuple[str, ...]] = {
    "acls remove": ("--topic", "t", "--force"),
    "acls add": ("--allow-principal", "User:a", "--topic", "t"),
    "configs alter": ("--entity-type", "topics", "--entity-name", "t", "--add-config", "retention.ms=1"),
    "configs describe": ("--entity-type", "topics", "--entity-name", "t"),
    "features downgrade": ("--feature", "transaction.version=0"),
    "features upgrade": ("--feature", "transaction.version=1"),
    "groups delete": ("--all-groups",),
    "groups describe": ("--all-groups",),
    "groups migrate": ("--all-groups",),
    "groups reset-offsets": ("--all-groups", "--all-topics", "--to-earliest"),
    "leaders elect": ("--all-topic-partitions",),
    "quotas remove": ("--user", "a"),
    "quotas set": ("--user", "a", "--producer-byte-rate", "1"),
    "topics alter": ("--partitions", "2"),
    "topics create": ("--partitions", "1", "--replication-factor", "1"),
    "transactions abort": ("--partition", "0", "--start-offset", "0"),
    "transactions find-hanging": ("--topic", "t"),
}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in sorted(group.commands.items()):
        if hasattr(one, "commands"):
            yield from commands(one, (*path, name))
        else:
            yield " ".join((*path, name)), one


ALL = dict(commands(typer.main.get_command(entry.app)))
CASES = [
    (name, where, file)
    for name, one in ALL.items()
    for where, file in (BROKERS, ZOOKEEPER)
    if any(where in option.opts for option in one.params) and (name, where) not in WITHOUT
]


def test_the_walk_finds_the_commands() -> None:
    assert {"acls add", "groups reset-offsets", "reassign execute", "topics list", "zk check"} <= set(ALL)
    assert len(CASES) > 45


@pytest.mark.parametrize(("name", "where", "file"), CASES, ids=lambda value: str(value).replace(" ", "-"))
def test_the_file_with_the_log_in_acts(
    name: str,
    where: str,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    monkeypatch.setenv(VARIABLE, "hunter2")
    command = ALL[name]
    missing = tmp_path / "missing.properties"
    words = [*name.split(), *MORE.get(name, ()), where, "127.0.0.1:1", file, str(missing)]
    for option in command.params:
        if option.required and not set(option.opts) & set(words):
            value = VALUES.get(option.opts[0], "t")
            if option.opts[0].endswith("-file"):
                (tmp_path / "given.json").write_text(value)
                value = str(tmp_path / "given.json")
            words += [option.opts[0], value]
    assert entry.main(words) == 1, words
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"logyard: {file} {missing}: No such file or directory\n"), words
