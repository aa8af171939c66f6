import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logyard.local import identity
from logyard.local.errors import LocalError
from logyard.local.processes import TOKEN, Processes, last_line

SLEEPER = ["sleep", "300"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    table = Processes(tmp_path)
    yield table
    table.stop_together(list(table.entries()), grace_s=1)


def eventually(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.01)


def test_another_object_on_the_directory_finds_and_ends_it(processes: Processes) -> None:
    entry = processes.start("one", SLEEPER)
    other = Processes(processes.directory)
    assert other.alive("one")
    assert other.stop("one")
    assert not entry.alive
    assert other.entries() == {}
    assert not other.stop("one")


def test_a_running_name_is_not_started_twice(processes: Processes) -> None:
    processes.start("one", SLEEPER)
    with pytest.raises(LocalError, match="already runs"):
        processes.start("one", SLEEPER)


def test_it_runs_in_a_session_of_its_own(processes: Processes) -> None:
    entry = processes.start("one", SLEEPER)
    stat = identity.stat_of(entry.pid or 0)
    assert stat is not None
    assert stat.session == entry.pid


def test_grandchildren_end_too_even_in_another_session(processes: Processes, tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "a = subprocess.Popen(['sleep', '300'])\n"
        "b = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "print(a.pid, b.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    entry = processes.start("parent", [sys.executable, "-c", script])
    log = Path(entry.log)
    eventually(lambda: len(log.read_text().split()) == 2)
    children = [identity.identify(int(pid)) for pid in log.read_text().split()]
    assert all(children)
    processes.stop("parent", grace_s=2)
    assert not any(child and identity.is_alive(child) for child in children)


def test_a_session_member_that_outlived_its_leader_ends_too(processes: Processes) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '300']).pid, flush=True)"
    entry = processes.start("leader", [sys.executable, "-c", script])
    eventually(lambda: not processes.alive("leader"))
    orphan = identity.identify(int(Path(entry.log).read_text()))
    assert orphan is not None
    assert processes.stop("leader")
    assert not identity.is_alive(orphan)


def test_what_is_started_by_the_end_of_another_ends_too(processes: Processes) -> None:
    """As a task of Airflow that is told to end starts a command that ends what it had begun elsewhere."""
    late = (
        "import signal, subprocess, sys, time\n"
        "def end(*_):\n"
        "    subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "time.sleep(300)\n"
    )
    parent = (
        f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {late!r}], start_new_session=True)\n"
    )
    entry = processes.start("parent", [sys.executable, "-c", f"{parent}time.sleep(300)"])
    eventually(lambda: "ready" in Path(entry.log).read_text())
    assert processes.stop("parent", grace_s=2)
    left = identity.carriers(TOKEN, entry.token)
    for one in left:
        identity.send(one, signal.SIGKILL)
    assert left == []


def test_who_does_not_listen_to_term_is_killed(processes: Processes) -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(300)"
    )
    entry = processes.start("deaf", [sys.executable, "-c", script])
    eventually(lambda: "deaf" in Path(entry.log).read_text())
    assert processes.stop("deaf", grace_s=0.2)
    assert not entry.alive


def test_a_start_that_was_interrupted_is_found_by_its_token(processes: Processes) -> None:
    entry = processes.start("one", SLEEPER)
    path = processes.directory / "processes.json"
    recorded = json.loads(path.read_text())
    recorded["one"].update(pid=None, started=None, boot=None)  # as it stood on disk just before the start
    path.write_text(json.dumps(recorded))
    assert Processes(processes.directory).stop("one", grace_s=1)
    assert not entry.alive


def test_a_pid_that_was_given_away_is_left_alone(processes: Processes) -> None:
    processes.start("one", SLEEPER)
    stranger = subprocess.Popen(SLEEPER, start_new_session=True)
    path = processes.directory / "processes.json"
    recorded = json.loads(path.read_text())
    original = dict(recorded["one"])
    recorded["one"]["pid"] = stranger.pid
    recorded["one"]["started"] -= 1
    recorded["one"]["token"] = "of a process that is gone"
    path.write_text(json.dumps(recorded))
    try:
        assert not Processes(processes.directory).stop("one", grace_s=1)
        assert stranger.poll() is None
    finally:
        stranger.send_signal(signal.SIGKILL)
        stranger.wait()
        path.write_text(json.dumps({"one": original}))


def test_a_command_that_does_not_exist_leaves_no_entry(processes: Processes) -> None:
    with pytest.raises(LocalError, match="cannot be started"):
        processes.start("none", ["/no/such/program"])
    assert processes.entries() == {}


def test_nothing_is_started_after_close(processes: Processes) -> None:
    processes.close()
    with pytest.raises(LocalError, match="is being stopped"):
        processes.start("one", SLEEPER)


def test_a_failure_names_status_and_last_words(processes: Processes) -> None:
    processes.start("bad", [sys.executable, "-c", "print('no port left'); raise SystemExit(3)"])
    eventually(lambda: not processes.alive("bad"))
    assert "bad ended with status 3: no port left" in processes.failure("bad")


def test_last_line_of_nothing(tmp_path: Path) -> None:
    assert last_line(tmp_path / "none.log") == "its log is empty"


def test_a_child_that_fled_its_family_is_found_by_the_token(processes: Processes) -> None:
    fled = "import subprocess; print(subprocess.Popen(['sleep', '300'], start_new_session=True).pid, flush=True)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {fled!r}])"
    entry = processes.start("parent", [sys.executable, "-c", script])
    eventually(lambda: not processes.alive("parent"))
    orphan = identity.identify(int(Path(entry.log).read_text()))
    assert orphan is not None
    assert identity.stat_of(orphan.pid).session == orphan.pid  # type: ignore[union-attr]
    assert processes.stop("parent")
    assert not identity.is_alive(orphan)
