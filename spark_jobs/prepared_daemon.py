"""The process of which workers are forked (worker_daemon.py), begun by the driver beside the start of Spark's context.

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
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logyard.spark_jobs.executors import JOB

PLACE = "LOGYARD_PREPARED_DAEMON"
"""The variable that tells Spark's daemon the socket."""

_STREAMS = (0, 1, 2)
_LENGTH = struct.Struct("!I")
# What is sent is this machine's environment, which the kernel keeps below that.
_SENT_MAX = 16 * 1024 * 1024

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


_begun: list[Prepared] = []
_early: list[Prepared] = []


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
    if not _early and (begun := _begin(given)):
        _early.append(begun)


def take(given: Mapping[str, str]) -> str | None:
    """Return the socket of the one that was begun early, or of another if that has other variables; None where it
    cannot be started: tasks do without it.

    :param given: the variables that Spark's would get besides this process's; the job is among them.
    """
    begun = _early.pop() if _early else None
    if begun and begun.given != given:
        os.close(begun.lifeline)
        begun = None
    begun = begun or _begin(given)
    if begun is None:
        return None
    _begun.append(begun)
    return begun.place


def forget() -> None:
    """End what was begun early: workers are elsewhere."""
    while _early:
        os.close(_early.pop().lifeline)


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
            command = [sys.executable, "-m", __name__, directory, str(listener.fileno()), str(lifeline)]
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
            socket.send_fds(wire, [_LENGTH.pack(len(told))], _STREAMS)
            wire.sendall(told)
            pid = _whole(wire, _LENGTH.size)
            if pid is None:
                return False
            signal.signal(signal.SIGTERM, lambda *_: _end(*_LENGTH.unpack(pid)))
            # Workers have this connection too, which are forked of it: it closes when the last of them has ended.
            with contextlib.suppress(OSError):
                while wire.recv(1):
                    pass
    except OSError:
        return False
    return True


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _whole(wire: socket.socket, size: int) -> bytes | None:
    """Receive that many bytes; None if it closes before."""
    got = b""
    while len(got) < size:
        piece = wire.recv(min(size - len(got), 65536))
        if not piece:
            return None
        got += piece
    return got


def _take_over(wire: socket.socket) -> bool:
    """Become what the process at the other end is to Spark; False if it went away before."""
    head, streams, _, _ = socket.recv_fds(wire, _LENGTH.size, len(_STREAMS))
    if len(head) != _LENGTH.size or len(streams) != len(_STREAMS):
        return False
    (size,) = _LENGTH.unpack(head)
    told = _whole(wire, size) if size <= _SENT_MAX else None
    if told is None:
        return False
    given: dict[str, Any] = json.loads(told)
    os.environ.clear()
    os.environ.update(given["variables"])
    sys.argv[1:] = given["arguments"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path += [path for path in paths if path and path not in sys.path]
    for number, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    wire.sendall(_LENGTH.pack(os.getpid()))
    return True


def _guest(listener: socket.socket, lifeline: int) -> socket.socket | None:
    """Wait for Spark's daemon; None if the driver ends before it comes."""
    ready, _, _ = select.select([listener, lifeline], [], [])
    return listener.accept()[0] if listener in ready else None


def main() -> None:
    """Prepare, take over, and be Spark's own."""
    from pyspark import daemon

    from logyard.spark_jobs.worker_daemon import prepare

    directory, listener, lifeline = sys.argv[1], socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
    try:
        prepare(os.environ.get(JOB, ""))
        guest = _guest(listener, lifeline)
    finally:
        listener.close()
        shutil.rmtree(directory, ignore_errors=True)
    os.close(lifeline)
    if guest is not None and _take_over(guest):
        daemon.manager()


if __name__ == "__main__":
    main()
