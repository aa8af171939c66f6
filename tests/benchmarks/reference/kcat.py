"""kcat as the reader of the rows: librdkafka in C, nothing decoded or printed.

A reader in Python was the limit with either kind of broker. kcat is it still where records are small: it takes six
seconds of CPU for a GB of 100 B, three times what a broker does. So a row tells the client's CPU beside the brokers'.
"""

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from tests.benchmarks.reference.measure import Steps, cpu_s
from tests.benchmarks.reference.tls import client
from tests.support.real_cluster import RealCluster

READS = 12
"""Readings of the same records in one run: one of them takes some tenths of a second."""
FLOOR_READS = 6
READ_S = 120.0
REPLICATED_S = 20.0
FIRST = "0"
"""An offset, not `beginning`: librdkafka asks a broker for that one, and waits for half a second before it asks again
where it does not know the broker yet. One reading in thirty was so, with either kind of broker."""


@dataclass(frozen=True, slots=True)
class Read:
    """Seconds of the median reading, and the mean CPU seconds of the brokers and of kcat for a reading."""

    seconds: float
    brokers_s: float
    own_s: float


def command(cluster: RealCluster, topic: str, *, tls: bool = False, start: str = FIRST) -> list[str]:
    """kcat on a topic, from its first record or from `start` to its end; nothing is printed.

    By default librdkafka waits a second when its queue was full for a moment, and half a second for what comes after
    the last record: more than the reading takes.
    """
    found = shutil.which("kcat")
    assert found, "kcat is missing: apt-get install kcat"
    settings = {key: str(value) for key, value in client(cluster, tls=tls).items()}
    settings |= {"queued.min.messages": "10000000", "queued.max.messages.kbytes": "2000000"}
    settings |= {"fetch.wait.max.ms": "10", "check.crcs": "false"}
    servers = settings.pop("bootstrap.servers")
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    return [found, "-C", "-b", servers, "-t", topic, "-o", start, "-e", "-q", "-f", "", *options]


def readings(
    cluster: RealCluster, topic: str, count: int, size: int, what: str, *, tls: bool = False, committed: bool = False
) -> Steps:
    """Read all of a topic READS times: the rate, what the brokers took and what kcat did, named after `what`.

    One reading before them is not timed: it finds no record less or more than `count`. *floor* is a kcat that has
    nothing to read: its start, its connections and its end, which are in the time of each reading. Yields before each.
    """
    isolation = ["-X", f"isolation.level=read_{'' if committed else 'un'}committed"]
    words = [*command(cluster, topic, tls=tls), *isolation]
    read = yield from _read(cluster, words, count, READS)
    nothing = yield from in_steps(cluster, [*command(cluster, topic, tls=tls, start="end"), *isolation], READS)
    amount = count * size / 1e6
    return {
        f"{what} MB/s": amount / read.seconds,
        f"{what} CPU s per GB": read.brokers_s / amount * 1000,
        f"{what}, client's CPU s per GB": read.own_s / amount * 1000,
        f"{what}, a reading, s": read.seconds,
        f"{what}, floor: kcat with nothing to read, s": nothing.seconds,
    }


def floor(cluster: RealCluster, topic: str, count: int, size: int, what: str) -> Steps:
    """What bare senders take for the same readings, and kcat for what it got of them. Yields before each reading."""
    read = yield from _read(cluster, command(cluster, topic), count, FLOOR_READS)
    amount = count * size / 1e6
    return {
        f"{what}, floor: bare senders, CPU s per GB": read.brokers_s / amount * 1000,
        f"{what}, floor: their client's CPU s per GB": read.own_s / amount * 1000,
    }


def _read(cluster: RealCluster, words: list[str], count: int, times: int) -> Generator[None, None, Read]:
    seen = _seen(words, count)
    assert seen == count, f"{seen} instead of {count} records read"
    return (yield from in_steps(cluster, words, times))


def in_steps(
    cluster: RealCluster,
    words: list[str],
    times: int,
    readers: int = 1,
    prepare: Callable[[], object] = lambda: None,
) -> Generator[None, None, Read]:
    """Run the command so often, by so many processes at once each time; prepare and yield before each time."""
    taken, used, own = [], 0.0, 0.0
    for _ in range(times):
        prepare()
        yield
        cpu, children, begun = cpu_s(cluster), _children_s(), time.perf_counter()
        _run(words, readers)
        taken.append(time.perf_counter() - begun)
        used, own = used + cpu_s(cluster) - cpu, own + _children_s() - children
    return Read(statistics.median(taken), used / times, own / times)


def _seen(words: list[str], count: int) -> int:
    """Return how many records a reading finds; with acks=1 the last are read once followers have them too."""
    deadline = time.monotonic() + REPLICATED_S
    while True:
        seen = len(_run([*words, "-f", "."]))  # a dot for each record
        if seen >= count or time.monotonic() > deadline:
            return seen


def _run(words: list[str], readers: int = 1) -> bytes:
    """Return what the last of them has printed."""
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(readers)]
    try:
        for process in started:
            printed, said = process.communicate(timeout=READ_S)
            assert process.returncode == 0, said.decode(errors="replace")[-500:]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return printed


def _children_s() -> float:
    """CPU seconds of processes that this one has started and waited for."""
    times = os.times()
    return times.children_user + times.children_system
