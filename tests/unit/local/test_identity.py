import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from logyard.local import identity


def test_a_start_is_told_in_ticks_since_the_boot() -> None:
    """As the kernel counts them: they hold whatever happens to the clock, and older records have them."""
    found = identity.stat_of(os.getpid())
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert found is not None
    assert (found.parent, found.session, found.started) == (int(fields[1]), int(fields[3]), int(fields[19]))
    assert not found.is_dead


def test_a_clock_that_is_set_meanwhile_changes_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity.stat_of(os.getpid())
    boots = iter([psutil.boot_time() + 3600])
    honest = psutil.boot_time
    monkeypatch.setattr(psutil, "boot_time", lambda: next(boots, None) or honest())
    assert identity.stat_of(os.getpid()) == before


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


class Seen:
    """A process as psutil shows it."""

    def __init__(self, program: str, environments: list[dict[str, str]]) -> None:
        self._program, self._environments = program, environments

    def environ(self) -> dict[str, str]:
        return self._environments.pop(0) if len(self._environments) > 1 else self._environments[0]

    def exe(self) -> str:
        return self._program


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Seen], None]:
    """Have a machine with this one process."""

    def seen(process: Seen) -> None:
        monkeypatch.setattr(identity, "boot_id", lambda: "this boot")
        monkeypatch.setattr(identity, "snapshot", lambda: [identity.Stat(42, False, 7, 40, 98765)])
        monkeypatch.setattr(psutil, "Process", lambda pid: process)

    return seen


def test_a_process_in_the_midst_of_its_exec_is_asked_again(only: Callable[[Seen], None]) -> None:
    # As the system shows it between the new program and its environment: a test that met this by chance failed so.
    only(Seen("/bin/sleep", [{}, {}, {"A": "b", "TOKEN": "mine"}]))
    assert identity.carriers("TOKEN", "mine") == [identity.Identity(42, 98765, "this boot")]


def test_one_that_never_has_an_environment_takes_no_time_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = {41: Seen("/bin/bare", [{}]), 42: Seen("/bin/sleep", [{}, {}, {"TOKEN": "mine"}])}
    monkeypatch.setattr(identity, "boot_id", lambda: "this boot")
    monkeypatch.setattr(identity, "snapshot", lambda: [identity.Stat(pid, False, 7, 40, pid) for pid in processes])
    monkeypatch.setattr(psutil, "Process", processes.__getitem__)
    monkeypatch.setattr(identity, "EXEC_S", 0.1)
    assert identity.carriers("TOKEN", "mine") == [identity.Identity(42, 42, "this boot")]


def test_a_thread_of_the_kernel_is_not_waited_for(
    only: Callable[[Seen], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    only(Seen("", [{}]))
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited for a thread of the kernel"))
    assert identity.carriers("TOKEN", "mine") == []
