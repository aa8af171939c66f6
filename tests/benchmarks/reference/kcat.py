"""kcat as the reader of the rows: librdkafka in C, nothing decoded or printed.

A reader in Python was the limit with either kind of broker. kcat is it still where records are small: it takes six
seconds of CPU for a GB of 100 B, three times what a broker does. So a row tells the client's CPU beside the brokers'.
"""

import os
import shutil
import subprocess
import time

from tests.benchmarks.reference.measure import Measured, cpu_s
from tests.benchmarks.reference.tls import client
from tests.support.real_cluster import RealCluster

READS = 5
"""Readings of the same records in one run: one of them takes some tenths of a second."""
READ_S = 120.0
REPLICATED_S = 20.0


def command(cluster: RealCluster, topic: str, *, tls: bool = False, start: str = "beginning") -> list[str]:
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
) -> Measured:
    """Read all of a topic READS times: the rate, what the brokers took and what kcat did, named after `what`.

    One reading before them is not timed: it finds no record less or more than `count`. *floor* is a kcat that has
    nothing to read: its start, its connections and its end, which are in the time of each reading.
    """
    isolation = ["-X", f"isolation.level=read_{'' if committed else 'un'}committed"]
    words = [*command(cluster, topic, tls=tls), *isolation]
    rate, used, own, each = _read(cluster, words, count, size)
    begun = time.perf_counter()
    for _ in range(READS):
        _run([*command(cluster, topic, tls=tls, start="end"), *isolation])
    nothing = (time.perf_counter() - begun) / READS
    return {
        f"{what} MB/s": rate,
        f"{what} CPU s per GB": used,
        f"{what}, client's CPU s per GB": own,
        f"{what}, a reading, s": each,
        f"{what}, floor: kcat with nothing to read, s": nothing,
    }


def floor(cluster: RealCluster, topic: str, count: int, size: int, what: str) -> Measured:
    """What bare senders take for the same readings, and kcat for what it got of them."""
    _, used, own, _ = _read(cluster, command(cluster, topic), count, size)
    return {
        f"{what}, floor: bare senders, CPU s per GB": used,
        f"{what}, floor: their client's CPU s per GB": own,
    }


def _read(cluster: RealCluster, words: list[str], count: int, size: int) -> tuple[float, float, float, float]:
    """Return MB/s, the brokers' and kcat's CPU seconds a GB, and the seconds of a reading."""
    seen = _seen(words, count)
    assert seen == count, f"{seen} instead of {count} records read"
    cpu, own, begun = cpu_s(cluster), _children_s(), time.perf_counter()
    for _ in range(READS):
        _run(words)
    taken, used, own = time.perf_counter() - begun, cpu_s(cluster) - cpu, _children_s() - own
    amount = READS * count * size / 1e6
    return amount / taken, used / amount * 1000, own / amount * 1000, taken / READS


def _seen(words: list[str], count: int) -> int:
    """Return how many records a reading finds; with acks=1 the last are read once followers have them too."""
    deadline = time.monotonic() + REPLICATED_S
    while True:
        seen = len(_run([*words, "-f", "."]))  # a dot for each record
        if seen >= count or time.monotonic() > deadline:
            return seen


def _run(words: list[str]) -> bytes:
    done = subprocess.run(words, capture_output=True, timeout=READ_S, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-500:]
    return done.stdout


def _children_s() -> float:
    """CPU seconds of processes that this one has started and waited for."""
    times = os.times()
    return times.children_user + times.children_system
