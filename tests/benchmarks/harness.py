"""What every benchmark uses: a row of the table, a broker's own CPU and memory, a client with requests under way."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from logyard.local import cluster as local_cluster
from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings

WINDOW = 50
MEGABYTE = 1_000_000
READY_S = 120


@dataclass(slots=True)
class Row:
    """One figure. `bound` is the most it may be; `ceiling` what the bare work costs on this machine in this run."""

    what: str
    value: float
    unit: str
    bound: float | None = None
    ceiling: float | None = None
    note: str = ""

    def text(self) -> str:
        value = f"{self.value:,.{2 if self.value < 10 else 1}f}"
        bound = "" if self.bound is None else f"{self.bound:,.0f}"
        verdict = "" if self.bound is None else ("ok" if self.value <= self.bound else "ABOVE")
        ratio = "" if not self.ceiling else f"{self.value / self.ceiling:.1f} x {self.ceiling:,.1f}"
        return f"{self.what:56}{value:>12} {self.unit:8}{bound:>8} {verdict:6}{ratio:>16}  {self.note}".rstrip()


HEADING = f"{'':56}{'':>12} {'':8}{'bound':>8} {'':6}{'x bare work':>16}"


@dataclass(frozen=True, slots=True)
class Server:
    """Where a process serves."""

    pid: int
    host: str
    port: int
    http_port: int | None = None

    def cpu_s(self) -> float:
        """User and system time of the whole process, threads that ended included, to the nanosecond."""
        return process_cpu_s(self.pid)

    def resident_mb(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / MEGABYTE

    def longest_pause_ms(self) -> float:
        """The event loop's longest pause since this was last asked."""
        url = f"http://{self.host}:{self.http_port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("logyard_event_loop_longest_pause_seconds "):
                    return float(line.split()[1]) * 1000
        raise RuntimeError("no event loop pause among the metrics")


class Wire:
    """A blocking connection that keeps up to `window` requests under way."""

    def __init__(self, server: Server, window: int = WINDOW) -> None:
        self._socket = socket.create_connection((server.host, server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", 1 << 20)
        self._window = window

    def exchange(self, frame: bytes, times: int) -> None:
        """Send the same frame so often and take every answer."""
        owed = 0
        for _ in range(times):
            self._socket.sendall(frame)
            owed += 1
            if owed == self._window:
                self.answer()
                owed -= 1
        for _ in range(owed):
            self.answer()

    def send(self, frame: bytes) -> None:
        """Send one frame; its answer is taken later."""
        self._socket.sendall(frame)

    def ask(self, frame: bytes) -> bytes:
        """Send one frame and return its answer, without the size."""
        self.send(frame)
        return self.answer()

    def answer(self) -> bytes:
        (size,) = struct.unpack(">i", self._file.read(4))
        body: bytes = self._file.read(size)
        if len(body) != size:
            raise RuntimeError("the server closed the connection")
        return body

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def process_cpu_s(pid: int) -> float:
    """User and system time of a process, threads that ended included, to the nanosecond."""
    return time.clock_gettime(((~pid) << 3) | 2)  # the process's CPU clock, as clock_getcpuclockid makes it


@contextmanager
def patient_starts(ready_s: float) -> Iterator[None]:
    """Wait so long for a broker that starts in the block: one of many partitions, on a slow machine."""
    before = local_cluster.READY_S
    local_cluster.READY_S = ready_s
    try:
        yield
    finally:
        local_cluster.READY_S = before


@contextmanager
def bare_server(path: Path, fetched: int | None = None) -> Iterator[Server]:
    """A process that does the bare work (bare_server.py) over that file; `fetched` bytes a Fetch, if told."""
    told = () if fetched is None else (str(fetched),)
    with started("tests.benchmarks.bare_server", str(path), *told) as server:
        yield server


@contextmanager
def started(module: str, *arguments: str) -> Iterator[Server]:
    """A process of that module, which prints its port."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process.pid, "127.0.0.1", int(process.stdout.readline()))
        finally:
            process.terminate()


@contextmanager
def cluster_of(directory: Path, brokers: int, config: Mapping[str, str]) -> Iterator[LocalCluster]:
    """ZooKeeper and brokers of their own, ended afterwards."""
    cluster = LocalCluster(directory)
    cluster.start(Settings(brokers, None, None, dict(config)))
    try:
        yield cluster
    finally:
        cluster.stop()


def servers(cluster: LocalCluster) -> list[Server]:
    """The brokers as they run now, by id."""
    described: list[dict[str, Any]] = json.loads(cluster.layout.description.read_text())["brokers"]
    return [Server(each["pid"], each["host"], each["port"], each["http_port"]) for each in described]


def create_topics(found: Sequence[Server], topics: Mapping[str, tuple[int, int]], config: Mapping[str, str]) -> None:
    """Make topics of (partitions, replicas) and wait until every partition has a leader."""
    bootstrap = ",".join(f"{server.host}:{server.port}" for server in found)
    admin = AdminClient({"log_level": 0, "bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, *shape, config=dict(config)) for name, shape in topics.items()]
    for created in admin.create_topics(wanted, operation_timeout=60, request_timeout=90).values():
        created.result(READY_S)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        known = admin.list_topics(timeout=30).topics
        led = [p.leader >= 0 for name in topics if name in known for p in known[name].partitions.values()]
        if len(led) == sum(partitions for partitions, _ in topics.values()) and all(led):
            return
        time.sleep(0.2)
    raise RuntimeError(f"not every partition of {', '.join(topics)} has a leader after {READY_S} s")


def cpu_us(server: Server, requests: int, rounds: int, work: Callable[[], None]) -> float:
    """CPU µs of the server for each of the requests of one `work`, in the best of the rounds.

    The best, because neighbours on the machine only ever add.
    """
    work()
    best = float("inf")
    for _ in range(rounds):
        before = server.cpu_s()
        work()
        best = min(best, server.cpu_s() - before)
    return best / requests * 1e6


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def warm_page_cache(directory: Path, size: int) -> None:
    """Have the machine hand out `size` bytes of page cache and take them back, right before they are needed.

    A virtual machine's memory that nobody has touched lately costs up to ten times more to write to: that is the
    host's doing, and would hide what is measured.
    """
    path = directory / "warm"
    with path.open("wb", buffering=0) as file:
        piece = bytes(1 << 20)
        for _ in range(size >> 20):
            os.write(file.fileno(), piece)
    path.unlink()
