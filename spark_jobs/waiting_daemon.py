"""The process that `prepared_daemon.py` begins: it prepares, waits for Spark's daemon, and is that to Spark.

It ends by itself if the driver ends before anybody comes.
"""

import json
import os
import select
import shutil
import socket
import sys
from typing import Any

from logyard.spark_jobs.executors import JOB
from logyard.spark_jobs.prepared_daemon import LENGTH, SENT_MAX, STREAMS, received
from logyard.spark_jobs.worker_daemon import prepare


def _take_over(wire: socket.socket) -> bool:
    """Become what the process at the other end is to Spark; False if it went away before."""
    head, streams, _, _ = socket.recv_fds(wire, LENGTH.size, len(STREAMS))
    if len(head) != LENGTH.size or len(streams) != len(STREAMS):
        return False
    (size,) = LENGTH.unpack(head)
    told = received(wire, size) if size <= SENT_MAX else None
    if told is None:
        return False
    given: dict[str, Any] = json.loads(told)
    os.environ.clear()
    os.environ.update(given["variables"])
    sys.argv[1:] = given["arguments"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path += [path for path in paths if path and path not in sys.path]
    for number, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    wire.sendall(LENGTH.pack(os.getpid()))
    return True


def _guest(listener: socket.socket, lifeline: int) -> socket.socket | None:
    """Wait for Spark's daemon; None if the driver ends before it comes."""
    ready, _, _ = select.select([listener.fileno(), lifeline], [], [])
    return listener.accept()[0] if listener.fileno() in ready else None


def main() -> None:
    """Prepare, take over, and be Spark's own."""
    from pyspark import daemon

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
