import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logyard.local import identity


def test_a_command_with_blanks_and_parentheses_is_read() -> None:
    stat = identity.parse_stat("42 (a (b) c) S 7 42 40 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 98765 0 0")
    assert stat == identity.Stat(pid=42, state="S", parent=7, session=40, started=98765)


def test_a_process_is_itself_and_not_another_start_of_its_pid() -> None:
    me = identity.identify(os.getpid())
    assert me is not None
    assert identity.is_alive(me)
    assert not identity.is_alive(identity.Identity(me.pid, me.started + 1, me.boot))
    assert not identity.is_alive(identity.Identity(me.pid, me.started, "another boot"))


def test_a_zombie_counts_as_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = identity.identify(child.pid)
    assert found is not None
    child.kill()
    assert identity.wait_gone([found], 10) == []
    child.communicate()


def test_a_signal_does_not_reach_whoever_has_the_pid_now() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = identity.identify(child.pid)
    assert found is not None
    stranger = identity.Identity(found.pid, found.started - 1, found.boot)
    assert not identity.send(stranger, signal.SIGKILL)
    assert child.poll() is None
    assert identity.send(found, signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def test_a_token_in_the_environment_finds_its_process() -> None:
    token = f"token-{os.getpid()}"
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, "LOGYARD_TEST_TOKEN": token})
    try:
        assert [found.pid for found in identity.carriers("LOGYARD_TEST_TOKEN", token)] == [child.pid]
        assert identity.carriers("LOGYARD_TEST_TOKEN", token[:-1]) == []
    finally:
        child.kill()
        child.wait()


def test_a_process_in_the_midst_of_its_exec_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As /proc shows it between the new program and its environment: a test that met this by chance failed so.
    process = tmp_path / "42"
    process.mkdir()
    (process / "stat").write_text("42 (sleep) S 7 42 40 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 98765 0 0")
    (process / "exe").symlink_to("/bin/sleep")
    (process / "environ").touch()
    monkeypatch.setattr(identity, "boot_id", lambda: "this boot")
    monkeypatch.setattr(identity, "PROC", tmp_path)
    monkeypatch.setattr(identity.time, "sleep", lambda _: (process / "environ").write_bytes(b"A=b\0TOKEN=mine\0"))
    assert identity.carriers("TOKEN", "mine") == [identity.Identity(42, 98765, "this boot")]


def test_a_thread_of_the_kernel_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = tmp_path / "2"
    thread.mkdir()
    (thread / "stat").write_text("2 (kthreadd) S 0 0 0 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0")
    (thread / "environ").touch()
    monkeypatch.setattr(identity, "boot_id", lambda: "this boot")
    monkeypatch.setattr(identity, "PROC", tmp_path)
    monkeypatch.setattr(identity.time, "sleep", lambda _: pytest.fail("waited for a thread of the kernel"))
    assert identity.carriers("TOKEN", "mine") == []
