"""Three brokers that replicate and do nothing else: the least that acks=all can take on this machine.

A leader checks a batch's checksum, writes it to a file and answers its followers' waiting fetches; a follower writes
what it got and fetches on; when both have fetched on, the leader answers the producer. Those are the four messages
between append and answer that Kafka's protocol asks for, over the same event loop as ours. There are no offsets of
partitions, no sessions, no epochs and no errors.

    python -m tests.benchmarks.reference.bare_replicas [--rounds N]

prints what these and our brokers take in turn, with acks=all: 500 records a second, and 1 KiB records at half of the
rate that ours can take. With a number, two lists of ports and a directory it is one of the brokers; with a file of a
key and its certificates, too, it serves clients by TLS. They are also the floor of the rows of 500 records a second
beside Apache Kafka, and of the latencies of `bench_cluster.py`.
"""

import argparse
import asyncio
import os
import ssl
import statistics
import struct
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import crc32c
import uvloop

from logyard.broker.protocol import header
from tests.benchmarks import frames, harness
from tests.benchmarks.load import Load
from tests.benchmarks.reference import bare_brokers, rows, tls
from tests.benchmarks.reference.measure import Measured
from tests.benchmarks.reference.settings import CONFIG
from tests.support import kafka
from tests.support.real_cluster import RealCluster

HOST, FOLLOWERS = bare_brokers.HOST, 2
CRC_AT, ATTRIBUTES_AT = 17, 21
FULL_SECONDS, HALF_SECONDS = 6, 8
_LENGTH = struct.Struct(">I")
_POSITION = struct.Struct(">Q")


class Log:
    """What one broker leads, as one file, with the followers that wait for more of it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._end = 0
        self._unanswered: deque[tuple[int, Callable[[], None]]] = deque()
        self._followers: dict[asyncio.WriteTransport, int] = {}
        self._waiting: list[asyncio.WriteTransport] = []

    def append(self, records: memoryview, answer: Callable[[], None]) -> None:
        """Write a batch; `answer` is called when both followers have it."""
        if crc32c.crc32c(records[ATTRIBUTES_AT:]) != _LENGTH.unpack_from(records, CRC_AT)[0]:
            raise ValueError("the checksum is wrong")
        self._end += os.pwrite(self._fd, records, self._end)
        self._unanswered.append((self._end, answer))
        waiting, self._waiting = self._waiting, []
        for follower in waiting:
            follower.write(_LENGTH.pack(len(records)) + records)

    def fetch(self, follower: asyncio.WriteTransport, position: int) -> None:
        """A follower has everything before `position` and asks for more."""
        self._followers[follower] = position
        if position < self._end:
            piece = os.pread(self._fd, self._end - position, position)
            follower.write(_LENGTH.pack(len(piece)) + piece)
        else:
            self._waiting.append(follower)
        if len(self._followers) == FOLLOWERS:
            common = min(self._followers.values())
            while self._unanswered and self._unanswered[0][0] <= common:
                self._unanswered.popleft()[1]()


class Leader(asyncio.Protocol):
    """A follower's connection, at the leader."""

    def __init__(self, log: Log) -> None:
        self._log, self._unread = log, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data
        for at in range(0, len(data) - 7, 8):
            self._log.fetch(self._transport, _POSITION.unpack_from(data, at)[0])
        self._unread = data[len(data) // 8 * 8 :]


class Follower(asyncio.Protocol):
    """The same connection, at the follower: writes what comes, and asks for more."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._position, self._unread = 0, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(_POSITION.pack(0))

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) < 4 or len(self._unread) < (end := 4 + _LENGTH.unpack_from(self._unread)[0]):
            return
        with memoryview(self._unread) as unread:
            self._position += os.pwrite(self._fd, unread[4:end], self._position)
        del self._unread[:end]
        self._transport.write(_POSITION.pack(self._position))


class Connection(bare_brokers.Connection):
    """A client's: all but Produce is answered at once."""

    def __init__(self, answers: bare_brokers.Answers, log: Log) -> None:
        super().__init__(answers)
        self._log = log

    def answer(self, asked: header.RequestHeader, body: Any) -> None:
        if asked.api_key != bare_brokers.PRODUCE:
            super().answer(asked, body)
            return
        (topic,) = body.topic_data
        (partition,) = topic.partition_data
        answer = super().answer
        self._log.append(memoryview(partition.records), lambda: answer(asked, body))


async def serve(number: int, at: list[int], peers: list[int], directory: Path, pem: Path | None) -> None:
    """One of the brokers: clients at `at`, by TLS if there is a `pem`, followers at `peers`; a port for each broker."""
    context = None
    if pem is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem)
    loop = asyncio.get_running_loop()
    log, answers = Log(directory / f"{number}"), bare_brokers.Answers(number, at)
    await loop.create_server(lambda: Leader(log), HOST, peers[number])
    for other in set(range(len(at))) - {number}:
        copy = partial(Follower, directory / f"{number}-of-{other}")
        while True:
            try:
                await loop.create_connection(copy, HOST, peers[other])
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)  # it is not up yet
    server = await loop.create_server(lambda: Connection(answers, log), HOST, at[number], ssl=context)
    await server.serve_forever()


@contextmanager
def running(directory: Path, *, by_tls: bool = False) -> Iterator[bare_brokers.BareCluster]:
    """Start three; stop them at the end."""
    at, peers, pem = bare_brokers.free_ports(3), bare_brokers.free_ports(3), []
    if by_tls:
        pem = [tls.prepare(directory, 3)["ssl.keystore.location"]]
        at = list(tls.ports(directory).values())
    with bare_brokers.started(__spec__.name, at, ",".join(map(str, peers)), str(directory), *pem) as bare:
        bare.directory = directory
        bare.client = tls.client(cast(RealCluster, bare), tls=by_tls)
        yield bare


def latency(cluster: RealCluster, *, by_tls: bool = False) -> Measured:
    """`rows.latency` with acks=all, and what bare processes take for the same client in the same run."""
    found = rows.latency(cluster, acks="all", tls=by_tls)
    with tempfile.TemporaryDirectory(prefix="logyard-bare-") as home, running(Path(home), by_tls=by_tls) as bare:
        floor = rows.latency(cast(RealCluster, bare), acks="all", tls=by_tls)
    return {**found, **{f"floor: three bare processes, {figure}": value for figure, value in floor.items()}}


def main() -> int:
    if len(sys.argv) in (5, 6) and sys.argv[1].isdigit():
        at, peers = ([int(port) for port in ports.split(",")] for ports in sys.argv[2:4])
        pem = Path(sys.argv[5]) if len(sys.argv) == 6 else None
        uvloop.run(serve(int(sys.argv[1]), at, peers, Path(sys.argv[4]), pem))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="counted runs of each (default: 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logyard-bench-") as home, ExitStack() as stack:
        bare = Path(home, "bare")
        bare.mkdir()
        clusters = {
            "ours": stack.enter_context(kafka.running(Path(home, "ours"), "OOO", CONFIG)),
            "bare": cast(RealCluster, stack.enter_context(running(bare))),
        }
        names = list(clusters)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for number in range(options.rounds + 1):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                found = dict(rows.latency(clusters[name], acks="all"))
                if number:
                    runs[name].append(found)
        report(runs)
        report(at_half_load(clusters, options.rounds))
    return 0


def at_half_load(clusters: Mapping[str, RealCluster], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Records of 1 KiB in a producer's usual batches, so many a second as half of what ours take at most."""
    loads = {name: Load(servers(cluster), 1024, {}) for name, cluster in clusters.items()}
    harness.create_topics(servers(clusters["ours"]), {frames.TOPIC: (bare_brokers.PARTITIONS, FOLLOWERS + 1)}, {})
    for load in loads.values():
        load.run(2, None)
    full = loads["ours"].run(FULL_SECONDS, None)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in clusters}
    for _ in range(rounds):
        for name, load in loads.items():
            found = load.run(HALF_SECONDS, full.records / full.seconds / 2)
            taken = {
                f"p{share * 100:g} ms, half load": harness.percentile(found.latencies, share) * 1000
                for share in (0.5, 0.99, 0.999)
            }
            runs[name].append({"MB/s, half load": found.records * 1024 / found.seconds / 1e6, **taken})
    return runs


def servers(cluster: RealCluster | bare_brokers.BareCluster) -> list[harness.Server]:
    """Where the brokers of a cluster serve, bare ones too."""
    addresses = (address.split(":") for address in cluster.bootstrap.split(","))
    brokers = cluster.description["brokers"]
    return [
        harness.Server(broker["pid"], host, int(port)) for broker, (host, port) in zip(brokers, addresses, strict=True)
    ]


def report(runs: Mapping[str, list[dict[str, float]]]) -> None:
    """A line for each figure and kind: the median, and the least and the most."""
    for figure in runs["ours"][0]:
        for name, found in runs.items():
            each = [run[figure] for run in found]
            print(f"{figure:20} {name:5} {statistics.median(each):8.2f}   {min(each):.2f} – {max(each):.2f}")


if __name__ == "__main__":
    sys.exit(main())
