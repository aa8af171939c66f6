"""Ctrl-C at any moment of bringing the platform up, and while it is up: nothing runs afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

PROGRAM = Path(__file__).parents[2] / "support" / "platform_of_standins.py"


def traces(directory: Path) -> list[str]:
    """Processes that work in that directory or name it on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            cwd = os.readlink(entry / "cwd")
        except OSError:
            continue
        if str(directory) in command or cwd.startswith(str(directory)):
            found.append(f"{entry.name} {command[:200]} in {cwd}")
    return found


@pytest.mark.parametrize(
    ("moment", "delay_s"),
    [
        ("starting ZooKeeper", 0.0),
        ("starting brokers", 0.1),
        ("starting Airflow", 0.0),
        pytest.param("waiting for Airflow", 4.0, marks=pytest.mark.long),
    ],
)
def test_an_interrupt_leaves_nothing(moment: str, delay_s: float, tmp_path: Path) -> None:
    interrupt_at(moment, delay_s, signal.SIGINT, tmp_path)


def test_a_termination_leaves_nothing(tmp_path: Path) -> None:
    """When all that will run has been started."""
    interrupt_at("waiting for Airflow", 0.0, signal.SIGTERM, tmp_path)


@pytest.mark.long
def test_a_termination_while_it_is_up_leaves_nothing(tmp_path: Path) -> None:
    interrupt_at("up", 0.0, signal.SIGTERM, tmp_path)


def interrupt_at(moment: str, delay_s: float, number: signal.Signals, directory: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(directory / "platform")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROGRAM.parents[2]), *sys.path[1:]])}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith(moment):
            break
    time.sleep(delay_s)
    child.send_signal(number)
    said = child.stdout.read()
    assert child.wait(timeout=60) != 0
    assert "Interrupted" in said
    assert traces(directory) == []
