"""Brokers that cost as little as a process can: they answer each request of a transactional producer at once.

They keep nothing, replicate nothing and never sync. With them in the place of a cluster the rows of transactions show
what the client takes for itself, and so the most that any broker could have on this machine:

    python -m tests.benchmarks.reference.bare_brokers

prints that for eight producers. With a number and three ports it is one of the brokers.
"""

import asyncio
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import uvloop
from confluent_kafka.admin import AdminClient

from logyard.broker.protocol import codec, header
from logyard.local import ports
from tests.support.real_cluster import RealCluster, eventually

PARTITIONS = 6
HOST = "127.0.0.1"
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 1, 3, 10, 18
CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 19, 20, 22, 24, 26
OFFERED = {
    PRODUCE: (3, 8),
    FETCH: (4, 11),  # never answered: librdkafka sends batches of format v2 only to who offers it
    METADATA: (0, 8),
    FIND_COORDINATOR: (0, 2),
    API_VERSIONS: (0, 3),
    CREATE_TOPICS: (0, 4),
    DELETE_TOPICS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
    ADD_PARTITIONS: (0, 2),
    END_TXN: (0, 2),
}


class Answers:
    """What the broker of that number says; the brokers of `ports` lead partitions in turn."""

    offered = OFFERED

    def __init__(self, number: int, at: list[int]) -> None:
        self._number, self._ports = number, at
        self._last_producer = 1000 * number
        self._by_key: dict[int, Callable[[Any], dict[str, Any]]] = {
            API_VERSIONS: self._versions,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._coordinator,
            INIT_PRODUCER_ID: self._producer,
            ADD_PARTITIONS: self._partitions_added,
            END_TXN: self._ended,
            PRODUCE: self._produced,
            CREATE_TOPICS: self._created,
            DELETE_TOPICS: self._deleted,
        }

    def to(self, key: int, body: Any) -> dict[str, Any]:
        return self._by_key[key](body)

    def _versions(self, _: Any) -> dict[str, Any]:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self.offered.items()]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, body: Any) -> dict[str, Any]:
        names = [topic.name for topic in body.topics or ()]
        return {
            "brokers": [{"node_id": n, "host": HOST, "port": port} for n, port in enumerate(self._ports)],
            "cluster_id": "bare",
            "controller_id": 0,
            "topics": [{"error_code": 0, "name": name, "partitions": self._partitions()} for name in names],
        }

    def _partitions(self) -> list[dict[str, Any]]:
        everyone = list(range(len(self._ports)))
        return [
            {
                "error_code": 0,
                "partition_index": n,
                "leader_id": n % len(everyone),
                "replica_nodes": everyone,
                "isr_nodes": everyone,
            }
            for n in range(PARTITIONS)
        ]

    def _coordinator(self, body: Any) -> dict[str, Any]:
        node = sum(body.key.encode()) % len(self._ports)
        return {"error_code": 0, "node_id": node, "host": HOST, "port": self._ports[node]}

    def _producer(self, _: Any) -> dict[str, Any]:
        self._last_producer += 1
        return {"error_code": 0, "producer_id": self._last_producer, "producer_epoch": 0}

    def _partitions_added(self, body: Any) -> dict[str, Any]:
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": p, "partition_error_code": 0} for p in topic.partitions
                    ],
                }
                for topic in body.v3_and_below_topics
            ]
        }

    def _ended(self, _: Any) -> dict[str, Any]:
        return {"error_code": 0}

    def _produced(self, body: Any) -> dict[str, Any]:
        return {
            "responses": [
                {
                    "name": topic.name,
                    "partition_responses": [
                        {"index": p.index, "error_code": 0, "base_offset": 0, "log_start_offset": 0}
                        for p in topic.partition_data
                    ],
                }
                for topic in body.topic_data
            ]
        }

    def _created(self, body: Any) -> dict[str, Any]:
        return {"topics": [{"name": topic.name, "error_code": 0} for topic in body.topics]}

    def _deleted(self, body: Any) -> dict[str, Any]:
        return {"responses": [{"name": name, "error_code": 0} for name in body.topic_names]}


class Connection(asyncio.Protocol):
    """One client's."""

    def __init__(self, answers: Answers) -> None:
        self._answers, self._unread = answers, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        unread, start = self._unread, 0
        unread += data
        while len(unread) >= start + 4 and len(unread) >= (
            end := start + 4 + int.from_bytes(unread[start : start + 4])
        ):
            frame = bytes(memoryview(unread)[start + 4 : end])
            start = end
            self.frame_received(frame)
        del unread[:start]

    def frame_received(self, frame: bytes) -> None:
        asked = header.parse_request_header(memoryview(frame))
        self.answer(asked, codec.decode_request(asked.api_key, asked.api_version, asked.body))

    def answer(self, asked: header.RequestHeader, body: Any) -> None:
        said = self._answers.to(asked.api_key, body)
        self._transport.write(codec.encode_response(asked.api_key, asked.api_version, asked.correlation_id, said))


class BareCluster:
    """Three bare brokers, for the rows that want a cluster: `bootstrap`, `description`, `admin`, `isrs_full`."""

    directory = Path()  # of those that serve by TLS: where their client finds ports and certificates

    def __init__(self, at: list[int], processes: list[subprocess.Popen[bytes]]) -> None:
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in at)
        self.description = {"brokers": [{"id": n, "pid": process.pid} for n, process in enumerate(processes)]}
        self.client: Mapping[str, object] = {"bootstrap.servers": self.bootstrap}

    def admin(self) -> AdminClient:
        return AdminClient(dict(self.client))

    def isrs_full(self, topic: str) -> bool:
        return bool(self.admin().list_topics(topic, timeout=10).topics)


def free_ports(count: int) -> list[int]:
    listening = [socket.create_server((HOST, 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in listening]
    for one in listening:
        one.close()
    return found


@contextmanager
def started(module: str, at: list[int], *words: str) -> Iterator[BareCluster]:
    """Start `module` for each of these ports, with its number, all ports and the words; stop them at the end."""
    command = [sys.executable, "-m", module]
    processes = [subprocess.Popen([*command, str(n), ",".join(map(str, at)), *words]) for n in range(len(at))]
    try:
        eventually(lambda: all(map(ports.answers, at)), "they answer")
        yield BareCluster(at, processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def serve(number: int, at: list[int]) -> None:
    answers = Answers(number, at)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(answers), HOST, at[number])
    await server.serve_forever()


def client_cpu_s() -> float:
    """What this process has used, and its children that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> int:
    if len(sys.argv) == 3:
        uvloop.run(serve(int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",")]))
        return 0
    from tests.benchmarks.reference import transactions  # whose rows have floors of bare processes themselves

    with started(__spec__.name, free_ports(3)) as bare:
        for client, work in (("librdkafka", transactions.commits), ("Java", transactions.java_commits)):
            for records in (1, 100):
                count, begun = 4000 // records + 400, client_cpu_s()
                found = work(cast(RealCluster, bare), records=records, producers=8, transactions=count)
                mine = (client_cpu_s() - begun) / (count + 8 * transactions.WARM) * 1000
                rate = found["transactions/s"]
                print(
                    f"{client}: {records} x 100 B, 8 producers: {rate:,.0f} transactions/s, {mine:.2f} ms of the client"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
