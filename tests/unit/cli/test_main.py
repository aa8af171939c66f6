import subprocess
import sys
from pathlib import Path

import pytest
import typer

from logyard.admin.errors import ApiError, ErrorCode
from logyard.cli import main as entry
from logyard.cli.cluster import parse_config, parse_signal
from logyard.local import interrupts
from logyard.local.errors import LocalError


@pytest.fixture(autouse=True)
def _keep_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cluster", "start"], "logyard: Missing option '--dir': see `logyard cluster start --help`\n"),
        (
            ["cluster", "stop", "--dir", "/x", "--nope"],
            "logyard: No such option: --nope: see `logyard cluster stop --help`\n",
        ),
        (["nope"], "logyard: No such command 'nope': see `logyard --help`\n"),
        (["topics", "nope"], "logyard: No such command 'nope': see `logyard topics --help`\n"),
        (["story", "x", "--nope"], "logyard: No such option: --nope: see `logyard story --help`\n"),
    ],
)
def test_misuse_is_one_line_and_status_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(arguments) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", said)


def test_a_refusal_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert entry.main(["cluster", "status", "--dir", f"{tmp_path}/none"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("logyard: no cluster was started in ")
    assert captured.err.count("\n") == 1


def test_a_missing_right_says_who_gives_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic events: not authorized")

    monkeypatch.setattr("logyard.cli.cluster.LocalCluster.status", refused)
    assert entry.main(["cluster", "status", "--dir", "/x"]) == 1
    assert capsys.readouterr().err == (
        "logyard: topic events: not authorized: this login lacks a right on the topic;"
        " who may alter the cluster gives it: logyard acls add\n"
    )


def test_an_interrupt_is_128_plus_its_signal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise interrupts.Interrupted(15)

    monkeypatch.setattr("logyard.cli.cluster.LocalCluster.status", interrupted)
    assert entry.main(["cluster", "status", "--dir", "/x"]) == 143
    assert "interrupted by SIGTERM" in capsys.readouterr().err


COMMANDS = [
    *(["cluster", name] for name in ("start", "stop", "start-broker", "stop-broker", "broker-status", "status")),
    *(["topics", name] for name in ("create", "list", "describe", "alter", "delete")),
    *(["reassign", name] for name in ("generate", "execute", "verify", "cancel", "list")),
    *(["configs", name] for name in ("describe", "alter")),
    ["leaders", "elect"],
    ["zk", "check"],
    ["dump-log"],
    ["story"],
    *(["groups", name] for name in ("list", "describe", "reset-offsets", "delete", "delete-offsets")),
    ["brokers"],
    *([name] for name in ("up", "down", "demo")),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([*command, "--help"]) == 0
    assert f"Example:\n\n      logyard {' '.join(command)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "list"], "name the cluster"),
        (["topics", "list", "--bootstrap-server", "a:1", "--zookeeper", "b:2"], "name the cluster"),
        (["topics", "alter", "--topic", "t", "--zookeeper", "b:2"], "nothing to alter"),
        (
            [
                "topics",
                "create",
                "--topic",
                "t",
                "--zookeeper",
                "b:2",
                "--replica-assignment",
                "0",
                "--partitions",
                "2",
            ],
            "excludes --partitions",
        ),
        (["topics", "create", "--topic", "t", "--zookeeper", "b:2", "--partitions", "0"], "greater than 0"),
        (
            ["topics", "describe", "--zookeeper", "b:2", "--under-replicated-partitions", "--at-min-isr-partitions"],
            "give only one of these",
        ),
        (["topics", "list", "--zookeeper", "b:2", "--command-config", "/f"], "leave it out with --zookeeper"),
    ],
)
def test_topics_misused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(arguments) == 1
    captured = capsys.readouterr().err
    assert said in captured
    assert captured.count("\n") == 1


def test_config_pairs() -> None:
    assert parse_config(["a=b", "c = d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(LocalError, match="key=value"):
            parse_config([wrong])


@pytest.mark.parametrize("name", ["KILL", "SIGKILL", "kill", "9"])
def test_signal_names(name: str) -> None:
    assert parse_signal(name) == 9


@pytest.mark.parametrize("name", ["NOPE", "0", "99"])
def test_no_signal(name: str) -> None:
    with pytest.raises(LocalError, match="no such signal"):
        parse_signal(name)


def test_a_question_without_an_answer_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise typer.Abort

    monkeypatch.setattr("logyard.cli.cluster.LocalCluster.status", asked)
    assert entry.main(["cluster", "status", "--dir", "/x"]) == 1
    assert capsys.readouterr().err == "logyard: nothing was answered: give the options that answer, see --help\n"


def test_an_error_of_the_system_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/x/y")

    monkeypatch.setattr("logyard.cli.cluster.LocalCluster.status", failed)
    assert entry.main(["cluster", "status", "--dir", "/x"]) == 1
    assert capsys.readouterr().err == "logyard: /x/y: Permission denied\n"


@pytest.mark.parametrize(
    ("words", "shell", "said", "status"),
    [
        ("users add --bootstrap-server h:1 --user a --password-file -", "<&-", "its first line is empty", 1),
        ("users add --bootstrap-server h:1 --user a", "<&-", "no password: give --password-file FILE", 1),
        ("dump-log --files leader-epoch-checkpoint", ">&-", "", 0),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one(
    words: str, shell: str, said: str, status: int, tmp_path: Path
) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n0\n")
    command = f"{sys.executable} -m logyard.cli.main {words} {shell}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (status, bool(said))
    assert said in done.stderr


LINE = "2026-11-21 23:23:43.000000 INFO    [2] topics were created  event_id={n} kind=CreateTopics topics=['t', 'é']\n"


@pytest.mark.parametrize(
    ("shell", "said", "status"),
    [
        ("{} > /dev/full", "logyard: output: No space left on device\n", 1),
        ("{} > /dev/full 2>&1", "", 1),
        ("{} | true; exit ${{PIPESTATUS[0]}}", "", 1),
        ("{} >&-", "", 0),
        ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {} > /dev/null", "", 0),
    ],
    ids=["full", "both full", "a pipe that is closed", "closed", "of few letters"],
)
def test_outputs_that_take_no_text(shell: str, said: str, status: int, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("".join(LINE.format(n=n) for n in range(5000)))
    command = shell.format(f"{sys.executable} -m logyard.cli.main story t {log}")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, said)
