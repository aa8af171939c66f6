"""The part of bench_controller.py with three real brokers: from a request to what every broker's metadata shows."""

import json
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from logyard.broker.protocol import codec
from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.benchmarks.harness import Row

METADATA, CREATE_TOPICS, DELETE_TOPICS, ELECT_LEADERS = 3, 19, 20, 43
VERSIONS = {METADATA: 12, CREATE_TOPICS: 5, DELETE_TOPICS: 4, ELECT_LEADERS: 2}
TIMEOUT_S = 240.0
LED = 3000  # partitions that the broker which shuts down leads
SPREAD = 7000  # with them a cluster of 10,000
CONFIG = {
    "zookeeper.session.timeout.ms": "10000",
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "log.index.size.max.bytes": "65536",
    "auto.leader.rebalance.enable": "false",
}

Leaders = dict[str, list[int]]
"""Topic → leader of each partition, -1 for none."""


class Ask:
    """Blocking requests to one broker."""

    def __init__(self, port: int) -> None:
        self._link = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._stream = self._link.makefile("rb")

    def __call__(self, api_key: int, fields: Mapping[str, Any]) -> Any:
        version = VERSIONS[api_key]
        self._link.sendall(codec.encode_request(api_key, version, 1, "bench", fields))
        (size,) = struct.unpack("!i", self._stream.read(4))
        return codec.decode_response(api_key, version, memoryview(self._stream.read(size)))[1]

    def metadata(self) -> Any:
        return self(METADATA, {"topics": None, "allow_auto_topic_creation": False})

    def leaders(self) -> Leaders:
        return {t.name: [p.leader_id for p in t.partitions] for t in self.metadata().topics}


class Brokers:
    """Three brokers and what is asked of them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        entries = json.loads((cluster.layout.directory / "cluster.json").read_text())["brokers"]
        self.ports = {int(b["id"]): int(b["port"]) for b in entries}
        self.asks = {broker: Ask(port) for broker, port in self.ports.items()}

    def controller(self) -> int:
        return int(next(iter(self.asks.values())).metadata().controller_id)

    def until(self, holds: Callable[[Leaders], bool]) -> float:
        """Wait until every broker that is asked shows it; returns when the last one did."""
        deadline = time.monotonic() + TIMEOUT_S
        for ask in self.asks.values():
            while not holds(ask.leaders()):
                if time.monotonic() > deadline:
                    raise RuntimeError("the brokers' metadata never showed it")
                time.sleep(0.02)
        return time.monotonic()

    def create(self, topics: list[dict[str, Any]]) -> float:
        """Seconds from the request to the last broker that shows every leader."""
        counts = {t["name"]: len(t["assignments"]) or t["num_partitions"] for t in topics}
        ask = Ask(self.ports[self.controller()])
        begin = time.monotonic()
        asked = threading.Thread(
            target=ask, args=(CREATE_TOPICS, {"topics": topics, "timeout_ms": 240_000, "validate_only": False})
        )
        asked.start()
        end = self.until(lambda found: all(_all_led(found.get(name), n) for name, n in counts.items()))
        asked.join()
        return end - begin

    def delete(self, names: list[str]) -> float:
        """Seconds from the request to the last broker that has forgotten them."""
        begin = time.monotonic()
        Ask(self.ports[self.controller()])(DELETE_TOPICS, {"topic_names": names, "timeout_ms": 240_000})
        return self.until(lambda found: not any(name in found for name in names)) - begin


def _all_led(leaders: list[int] | None, count: int) -> bool:
    return leaders is not None and len(leaders) == count and -1 not in leaders


def new_topic(name: str, partitions: int, replicas: int) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
    }


def placed_topic(name: str, placement: list[list[int]]) -> dict[str, Any]:
    placed = [{"partition_index": number, "broker_ids": brokers} for number, brokers in enumerate(placement)]
    return {**new_topic(name, -1, -1), "assignments": placed}


def measure_brokers(directory: Path) -> list[Row]:
    """Every figure that needs real brokers; about five minutes."""
    rows: list[Row] = []

    def keep(what: str, seconds: float, note: str = "") -> None:
        rows.append(Row(what, seconds, "s", note=note))

    cluster = LocalCluster(directory)
    cluster.start(Settings(3, None, None, CONFIG))
    try:
        brokers = Brokers(cluster)
        _topics(brokers, keep)
        _leaders(brokers, keep)
    finally:
        cluster.stop()
    return rows


Keep = Callable[..., None]


def _topics(brokers: Brokers, keep: Keep) -> None:
    keep("one topic of 1,000 partitions x 3", brokers.create([new_topic("wide", 1000, 3)]))
    brokers.delete(["wide"])
    names = [f"many-{n:04}" for n in range(1000)]
    keep("1,000 topics of one partition x 3, one request", brokers.create([new_topic(n, 1, 3) for n in names]))
    keep("deletion of 1,000 topics of one partition x 3", brokers.delete(names))
    row = [brokers.create([new_topic(f"row-{n:03}", 1, 3)]) for n in range(100)]
    keep("100 topics of one partition x 3 in a row", sum(row), f"slowest {max(row) * 1000:.0f} ms")
    brokers.delete([f"row-{n:03}" for n in range(100)])


def _leaders(brokers: Brokers, keep: Keep) -> None:
    """A broker that leads 3,000 partitions hands over; its leaderships come back; then the controller is killed."""
    controller = brokers.controller()
    leaving, other = (broker for broker in brokers.ports if broker != controller)
    placement = [[leaving, (other, controller)[n % 2]] for n in range(LED)]
    keep(f"one topic of {LED:,} partitions x 2", brokers.create([placed_topic("led", placement)]))
    asks = brokers.asks
    brokers.asks = {broker: ask for broker, ask in asks.items() if broker != leaving}
    ended = threading.Thread(target=brokers.cluster.stop_broker, args=(leaving, signal.SIGTERM))
    begin = time.monotonic()
    ended.start()
    keep(
        f"controlled shutdown of a broker with {LED:,} leaders",
        brokers.until(lambda found: leaving not in found["led"] and -1 not in found["led"]) - begin,
        "from SIGTERM to no leader there, as the others see it",
    )
    ended.join()
    begin = time.monotonic()
    brokers.cluster.start_broker(leaving)
    brokers.asks[leaving] = Ask(brokers.ports[leaving])
    _await_in_sync(brokers)
    keep(f"its start, until all {LED:,} are in sync again", time.monotonic() - begin, "Python's start included")
    begin = time.monotonic()
    Ask(brokers.ports[controller])(ELECT_LEADERS, {"election_type": 0, "topic_partitions": None, "timeout_ms": 240_000})
    back = brokers.until(lambda found: set(found["led"]) == {leaving})
    keep(f"preferred election of {LED:,} leaders", back - begin)
    keep(f"one topic of {SPREAD:,} partitions x 2, spread", brokers.create([new_topic("spread", SPREAD, 2)]))
    _kill_controller(brokers, controller, keep)


def _await_in_sync(brokers: Brokers) -> None:
    ask = next(iter(brokers.asks.values()))
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        (topic,) = [t for t in ask.metadata().topics if t.name == "led"]
        if all(len(p.isr_nodes) == len(p.replica_nodes) for p in topic.partitions):
            return
        time.sleep(0.1)
    raise RuntimeError("the broker never came back into every ISR")


def _kill_controller(brokers: Brokers, controller: int, keep: Keep) -> None:
    """From the disappearance of /controller to the last leader known everywhere."""
    gone = threading.Event()
    moments: list[float] = []
    zk = KazooClient(brokers.cluster.address)
    zk.start(10)

    def vanished(_: object) -> None:
        moments.append(time.monotonic())
        gone.set()

    zk.exists("/controller", watch=vanished)
    del brokers.asks[controller]
    before = [leader for leaders in next(iter(brokers.asks.values())).leaders().values() for leader in leaders]
    brokers.cluster.stop_broker(controller, signal.SIGKILL)
    if not gone.wait(60):
        raise RuntimeError("/controller outlived its broker")
    alive = set(brokers.ports) - {controller}

    def settled(found: Leaders) -> bool:
        return all(leader in alive for leaders in found.values() for leader in leaders)

    # A partition whose metadata has not changed yet shows a living leader, too: the new controller is waited for first.
    for ask in brokers.asks.values():
        while ask.metadata().controller_id not in alive:
            time.sleep(0.01)
    led = before.count(controller)
    note = f"from /controller gone; {led:,} partitions were led by the controller, which was killed"
    keep(f"failover with {len(before):,} partitions", brokers.until(settled) - moments[0], note)
    zk.stop()
    zk.close()
