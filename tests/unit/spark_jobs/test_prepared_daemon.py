"""The daemon that is prepared beside Spark's start: it takes the place of Spark's, and ends where nobody needs it."""

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logyard.broker.compiled.kernel_place import CHOSEN, PRIVATE
from logyard.spark_jobs import prepared_daemon, session
from logyard.spark_jobs.executors import JOB
from logyard.spark_jobs.prepared_daemon import Prepared

GIVEN = {JOB: "nothing"}


@pytest.fixture
def prepared() -> Iterator[Prepared]:
    place = prepared_daemon.take(GIVEN)
    begun = prepared_daemon.taken.pop()
    assert begun.place == place
    yield begun
    with suppress(OSError):  # a test has closed it
        os.close(begun.lifeline)
    begun.process.wait(timeout=60)


def sparks(place: str) -> "subprocess.Popen[bytes]":
    """What Spark starts: it reads the port off its standard output, and closes its standard input at the end."""
    variables = {prepared_daemon.PLACE: place, JOB: "nothing", "PYTHON_WORKER_FACTORY_SECRET": "of this factory"}
    command = [sys.executable, "-m", "logyard.spark_jobs.worker_daemon", "pyspark.worker"]
    return subprocess.Popen(
        command, env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@contextmanager
def worker_of(daemon: "subprocess.Popen[bytes]") -> Iterator[int]:
    """Have the daemon fork a worker that lives meanwhile; yields its pid."""
    assert daemon.stdout is not None
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        yield struct.unpack("!i", wire.recv(4, socket.MSG_WAITALL))[0]


def forked_by(daemon: "subprocess.Popen[bytes]") -> int:
    """Have the daemon fork a worker; returns whose child it is."""
    with worker_of(daemon) as worker:
        status = Path(f"/proc/{worker}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


@pytest.mark.timeout(120)
def test_it_is_the_daemon_of_spark_until_spark_ends_it(prepared: Prepared) -> None:
    with sparks(prepared.place) as daemon:
        assert forked_by(daemon) == prepared.process.pid
        assert not Path(prepared.place).parent.exists()
        assert daemon.stdin is not None
        daemon.stdin.close()
        assert prepared.process.wait(timeout=60) == 1  # as PySpark's own ends
        assert daemon.wait(timeout=60) == 0


@pytest.mark.timeout(120)
def test_sigterm_at_the_one_ends_the_other(prepared: Prepared) -> None:
    with sparks(prepared.place) as daemon:
        forked_by(daemon)
        daemon.send_signal(signal.SIGTERM)
        assert prepared.process.wait(timeout=60) == 1
        assert daemon.wait(timeout=60) == 0


@pytest.mark.timeout(120)
def test_sigterm_ends_workers_whose_daemon_has_died_before_it_told_them(prepared: Prepared) -> None:
    """As it does when SIGTERM comes while it ends by itself, its standard input being closed."""
    with sparks(prepared.place) as daemon, worker_of(daemon):
        prepared.process.kill()
        prepared.process.wait(timeout=60)
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.wait(timeout=0.3)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=60) == 0, "it waits for the last of its workers"


@pytest.mark.timeout(120)
def test_sparks_own_prepares_itself_where_the_prepared_one_has_died(prepared: Prepared) -> None:
    prepared.process.kill()
    prepared.process.wait(timeout=60)
    with sparks(prepared.place) as daemon:
        assert forked_by(daemon) == daemon.pid
        assert daemon.stdin is not None
        daemon.stdin.close()
        daemon.wait(timeout=60)


@pytest.mark.timeout(120)
def test_it_ends_with_a_driver_that_never_needed_it(prepared: Prepared) -> None:
    os.close(prepared.lifeline)
    assert prepared.process.wait(timeout=60) == 0
    assert not Path(prepared.place).parent.exists()


def test_where_there_is_no_room_for_a_socket_tasks_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert prepared_daemon.take(GIVEN) is None
    assert list(deep.iterdir()) == []
    assert not prepared_daemon.hand_over(str(deep / "socket"))


@pytest.mark.timeout(120)
def test_what_was_begun_early_is_taken_if_it_has_the_variables_of_the_job() -> None:
    prepared_daemon.begin_early(GIVEN)
    (early,) = prepared_daemon.early
    prepared_daemon.begin_early({JOB: "another"})
    assert prepared_daemon.early == [early]
    assert prepared_daemon.take(GIVEN) == early.place
    os.close(prepared_daemon.taken.pop().lifeline)

    prepared_daemon.begin_early(GIVEN)
    (unfit,) = prepared_daemon.early
    assert prepared_daemon.take(GIVEN | {"MORE": "1"}) != unfit.place
    os.close(prepared_daemon.taken.pop().lifeline)

    prepared_daemon.begin_early(GIVEN)
    (elsewhere,) = prepared_daemon.early
    prepared_daemon.forget()
    assert [one.process.wait(timeout=60) for one in (early, unfit, elsewhere)] == [0, 0, 0]


LOCAL = ["--master", "local[2]", "--verbose", "--conf", "spark.executorEnv.TZ=A=B", "audit.py", "--conf", "of.job=1"]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (LOCAL, {"TZ": "A=B", JOB: "audit", PRIVATE: "1"}),
        (["--conf", "spark.master=local[*]", "audit.py"], {JOB: "audit", PRIVATE: "1"}),
        (["audit.py", "--master", "local[2]"], None),
        (["--master", "yarn", "audit.py"], None),
        (["--master", "local[2]", "--conf", "spark.python.daemon.module=mine", "audit.py"], None),
        (["--master", "local[2]", "--conf", "spark.pyspark.python=/another", "audit.py"], None),
        (["--master"], None),
    ],
)
def test_it_begins_early_where_the_command_line_says_that_workers_are_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], given: dict[str, str] | None
) -> None:
    line = tmp_path / "cmdline"
    line.write_text("\0".join(["java", "-cp", "jars", "org.apache.spark.deploy.SparkSubmit", *words, ""]))
    begun: list[dict[str, str]] = []
    monkeypatch.setattr(prepared_daemon, "LINE", str(line))
    monkeypatch.setattr(prepared_daemon, "begin_early", lambda given: begun.append(dict(given)))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv(CHOSEN, raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    session.ahead("audit")
    assert begun == [], "nobody has submitted it"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    session.ahead("audit")
    assert begun == ([] if given is None else [given])
