"""`logyard users add --zookeeper`: a user before the first broker starts."""

import io
import os
from pathlib import Path

import pytest

from logyard.broker.znodes import configs
from logyard.broker.znodes.scram_credentials import ScramCredential
from logyard.cli.users import VARIABLE
from tests.support.tree_znodes import TreeZnodes
from tests.unit.cli.conftest import Run


@pytest.fixture
def password(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text("s3cret, pw]\n")
    return str(path)


def test_a_user_is_written_once(run: Run, znodes: TreeZnodes, password: str) -> None:
    words = ["users", "add", "--zookeeper", "z:1", "--user", "al ice", "--password-file", password]
    status, said, _ = run(*words)
    assert status == 0
    (znode,) = znodes.read(["/config/users/al%20ice"])
    assert znode is not None
    (found,) = (ScramCredential.parse(text) for text in configs.decode(znode.data).values())
    assert found == ScramCredential.of_password("SCRAM-SHA-512", "s3cret, pw]", 8192, found.salt)
    status, again, problem = run(*words)
    assert status != 0
    assert "user al ice exists" in problem
    assert "s3cret" not in said + again + problem


def test_one_way_is_needed(run: Run, znodes: TreeZnodes, password: str) -> None:
    status, _, problem = run("users", "add", "--user", "a", "--password-file", password)
    assert status != 0
    assert "name the cluster" in problem


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_password_that_is_no_text_is_refused(
    run: Run, znodes: TreeZnodes, monkeypatch: pytest.MonkeyPatch, errors: str
) -> None:
    """Python decodes the input strictly or not, as the locale is, and the environment never."""
    add = ("users", "add", "--zookeeper", "z:1", "--user", "a")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"s\xff3cret\n"), encoding="utf-8", errors=errors))
    status, said, problem = run(*add, "--password-file", "-")
    assert (status, said, problem.count("\n"), "s\\" in problem) == (1, "", 1, False)
    assert "no UTF-8 text" in problem
    monkeypatch.setenv(VARIABLE, os.fsdecode(b"s\xff3cret"))
    assert run(*add) == (1, "", f"logyard: {VARIABLE} is no UTF-8 text\n")


@pytest.mark.parametrize("text", ["", "\n", "\r\ns3cret\n"])
def test_a_place_without_the_password_is_named(
    run: Run, znodes: TreeZnodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "password"
    path.write_text(text)
    add = ("users", "add", "--zookeeper", "z:1", "--user", "a")
    said = f"logyard: --password-file {path}: its first line is empty: the password is expected there\n"
    assert run(*add, "--password-file", str(path)) == (1, "", said)
    monkeypatch.setenv(VARIABLE, "")
    assert run(*add) == (1, "", f"logyard: {VARIABLE} is empty: the password is expected there\n")
