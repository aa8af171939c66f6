"""The process of which workers are forked (waiting_daemon.py), begun by the driver beside the start of Spark's context.

Spark starts its daemon with the first task, and waits for it. This one imports and loads meanwhile, and takes the place
of Spark's: that hands over its arguments, variables and standard streams, and lives as long as this one does.

Rule 1: it is a process of this machine's driver; it ends with the driver if nobody has come, and is there for one.
Rule 2: who comes to nobody prepares by itself, as where there is none.
Rule 3: variables of the daemon (a secret is among them) go through a socket in a directory of this user's own.
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

PLACE = "LOGYARD_PREPARED_DAEMON"
"""The variable that tells Spark's daemon the socket."""

PROCESS = "logyard.spark_jobs.waiting_daemon"
STREAMS = (0, 1, 2)
LENGTH = struct.Struct("!I")
# What is sent is this machine's environment, which the kernel keeps below that.
SENT_MAX = 16 * 1024 * 1024

LINE = "/proc/{}/cmdline"
# Of spark-submit, those without a value.
_FLAGS = ("--verbose", "--supervise")


@dataclass(frozen=True, slots=True)
class Prepared:
    """One that was begun. `lifeline`: the end of a pipe that closes when the driver ends."""

    given: Mapping[str, str]
    place: str
    process: "subprocess.Popen[bytes]"
    lifeline: int


early: list[Prepared] = []
"""The one that was begun before Spark has told its settings, if there is one."""
taken: list[Prepared] = []
"""Those that Spark's daemons are told of; their lifelines stay open as long as this process lives."""


def submitted() -> dict[str, str]:
    """Return the settings that are on the command line of spark-submit's JVM, if this is its driver: they are known
    before anything of Spark is imported. Those of files are not among them."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    try:
        with open(LINE.format(os.getppid()), encoding="utf-8", errors="surrogateescape") as file:
            _, _, told = file.read().partition("\0org.apache.spark.deploy.SparkSubmit\0")
    except OSError:  # another system than Linux
        return {}
    words, settings = iter(told.split("\0")), {}
    for option in words:
        if not option.startswith("--"):
            break
        value = "" if option in _FLAGS else next(words, "")
        name, _, text = value.partition("=") if option == "--conf" else (f"spark.{option[2:]}", "", value)
        settings[name] = text
    return settings


def begin_early(given: Mapping[str, str]) -> None:
    """Start it before Spark has told its settings: `take` takes it, or ends it."""
    if not early and (begun := _begin(given)):
        early.append(begun)


def take(given: Mapping[str, str]) -> str | None:
    """Return the socket of the one that was begun early, or of another if that has other variables; None where it
    cannot be started: tasks do without it.

    :param given: the variables that Spark's would get besides this process's; the job is among them.
    """
    begun = early.pop() if early else None
    if begun and begun.given != given:
        os.close(begun.lifeline)
        begun = None
    begun = begun or _begin(given)
    if begun is None:
        return None
    taken.append(begun)
    return begun.place


def forget() -> None:
    """End what was begun early: workers are elsewhere."""
    while early:
        os.close(early.pop().lifeline)


def _begin(given: Mapping[str, str]) -> Prepared | None:
    try:
        directory = tempfile.mkdtemp(prefix="logyard-daemon-")
    except OSError:
        return None
    place = os.path.join(directory, "socket")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # it does so itself, unless it is killed
    seed = os.environ.get("PYTHONHASHSEED", "0")  # as Spark sets it for its own
    variables = os.environ | {"PYTHONHASHSEED": seed} | dict(given) | {"PYTHONUNBUFFERED": "1"}
    lifeline, ours = os.pipe()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place)
            listener.listen(1)
            command = [sys.executable, "-m", PROCESS, directory, str(listener.fileno()), str(lifeline)]
            process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(listener.fileno(), lifeline),
            )
    except OSError:  # a path that is too long for a socket, no more processes
        os.close(ours)
        shutil.rmtree(directory, ignore_errors=True)
        return None
    finally:
        os.close(lifeline)
    return Prepared(dict(given), place, process, ours)


def hand_over(place: str) -> bool:
    """Have the process at `place` be this one's daemon, and wait for its end; False if nobody is there."""
    told = json.dumps({"arguments": sys.argv[1:], "variables": dict(os.environ)}).encode()
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(place)
            socket.send_fds(wire, [LENGTH.pack(len(told))], STREAMS)
            wire.sendall(told)
            pid = received(wire, LENGTH.size)
            if pid is None:
                return False
            signal.signal(signal.SIGTERM, lambda *_: _end(*LENGTH.unpack(pid)))
            # Workers have this connection too, which are forked of it: it closes when the last of them has ended.
            with contextlib.suppress(OSError):
                while wire.recv(1):
                    pass
    except OSError:
        return False
    return True


def _end(pid: int) -> None:
    """End the daemon, and its workers as it would do: it dies of SIGTERM before it has told them, if it has just seen
    the end of its standard input, which Spark closes at the same time."""
    for tell, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGHUP)):
        with contextlib.suppress(ProcessLookupError):
            tell(pid, number)


def received(wire: socket.socket, size: int) -> bytes | None:
    """Receive that many bytes; None if it closes before."""
    got = b""
    while len(got) < size:
        piece = wire.recv(min(size - len(got), 65536))
        if not piece:
            return None
        got += piece
    return got
