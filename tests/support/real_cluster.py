"""What integration tests ask of a running cluster, through stock clients and the files on disk.

    cluster.create("t", partitions=3, replicas=3, cleanup_policy="compact")
    acknowledged = cluster.produce("t", [(b"k", b"v")])  # (partition, value) → offset, acks=all
    messages = cluster.consume("t", 1)
    eventually(lambda: len(set(cluster.digests("t", 0).values())) == 1, "replicas are equal")

Fixtures give one (`cluster`, shared; `own_cluster` for what kills brokers), over `logyard.local`'s LocalCluster in
`cluster.cluster`. `describe`, `controller` and `isrs_full` ask for state; `eventually` waits for what becomes true.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from logyard.local.cluster import LocalCluster
from tests.support.pauses import Pauses

WAIT_S = 30.0
HEARD_S = 2.0


def eventually(look: Callable[..., Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Return the first truthy answer of `look`; fails with `what` and the last answer."""
    deadline = time.monotonic() + timeout_s
    found: Any = None
    pauses = Pauses()
    while time.monotonic() < deadline:
        try:
            found = look()
            if found:
                return found
        except (AssertionError, KafkaException) as error:
            found = error
        pauses.sleep()
    raise AssertionError(f"{what}: not within {timeout_s} s, last seen {found!r}")


class RealCluster:
    """One cluster, seen from outside. `clients` and `admins`: librdkafka's options, for a secured one."""

    def __init__(
        self,
        cluster: LocalCluster,
        clients: Mapping[str, str] | None = None,
        admins: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster = cluster
        self.directory = cluster.layout.directory
        self._clients = dict(clients or {})
        self._admins = dict(admins or clients or {})

    @property
    def description(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.directory / "cluster.json").read_text())
        return told

    @property
    def bootstrap(self) -> str:
        return str(self.description["bootstrap"])

    @property
    def client_options(self) -> dict[str, str]:
        """Options of librdkafka for who produces and consumes."""
        return {"bootstrap.servers": self.bootstrap, **self._clients}

    @property
    def admin_options(self) -> dict[str, str]:
        """Options of librdkafka for who manages the cluster."""
        return {"bootstrap.servers": self.bootstrap, **self._admins}

    def address(self, broker: int) -> str:
        """One broker's host:port."""
        return next(f"{each['host']}:{each['port']}" for each in self.description["brokers"] if each["id"] == broker)

    def admin(self) -> AdminClient:
        return AdminClient(self.admin_options)

    def create(self, topic: str, partitions: int = 3, replicas: int = 3, **config: str) -> None:
        new = NewTopic(topic, partitions, replicas, config={k.replace("_", "."): v for k, v in config.items()})
        admin = self.admin()  # librdkafka ends its work with the handle: it has to outlive the future
        admin.create_topics([new], operation_timeout=20)[topic].result(30)

    def create_again(self, topic: str) -> None:
        """Create a topic that was deleted a moment ago: the controller may still be removing its replicas."""

        def is_there() -> bool:
            self.create(topic)
            return True

        eventually(is_there, f"{topic} can be created again")

    def produce(
        self, topic: str, events: Iterator[tuple[bytes | None, bytes]] | list[Any], **conf: Any
    ) -> dict[Any, int]:
        """Send with acks=all; returns the offset of every acknowledged (partition, value)."""
        acknowledged: dict[Any, int] = {}

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                acknowledged[message.partition(), message.value()] = message.offset()

        producer = Producer({**self.client_options, "acks": "all", "linger.ms": 5, **conf})
        for key, value in events:
            producer.produce(topic, value, key, on_delivery=delivered)
            producer.poll(0)
        producer.flush(60)
        return acknowledged

    def consume(self, topic: str, count: int, timeout_s: float = WAIT_S) -> list[Any]:
        """Read `count` records from the start of every partition, without a group's help."""
        consumer = Consumer({**self.client_options, "group.id": "unused", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, p, 0) for p in _partitions(consumer, topic)])
            records: list[Any] = []
            deadline = time.monotonic() + timeout_s
            while len(records) < count and time.monotonic() < deadline:
                # Returns as soon as it has so many; with more it would wait for what may never come.
                wanted = min(1000, count - len(records))
                records += [m for m in consumer.consume(wanted, 0.5) if m.error() is None]
            # What is there beside these is seen too.
            while time.monotonic() < deadline and (more := consumer.consume(1000, 0.1)):
                records += [m for m in more if m.error() is None]
            return records
        finally:
            consumer.close()

    def describe(self, topic: str) -> dict[int, Any]:
        """Partition metadata by number, as librdkafka sees it."""
        return _partitions(self.admin(), topic)

    def isrs_full(self, topic: str) -> bool:
        found = self.describe(topic)
        return bool(found) and all(set(p.isrs) == set(p.replicas) and p.leader >= 0 for p in found.values())

    @contextmanager
    def zookeeper(self) -> Iterator[KazooClient]:
        client = KazooClient(self.description["zookeeper"])
        client.start(10)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def controller(self) -> tuple[int, int]:
        """(broker id, controller epoch); id -1 while nobody holds the znode."""
        with self.zookeeper() as zk:
            epoch = int(zk.get("/controller_epoch")[0])
            try:
                return int(json.loads(zk.get("/controller")[0])["brokerid"]), epoch
            except NoNodeError:
                return -1, epoch

    def replica_dirs(self, topic: str, partition: int) -> dict[int, Path]:
        return {
            broker["id"]: path
            for broker in self.description["brokers"]
            for directory in broker["log_dirs"]
            if (path := Path(directory) / f"{topic}-{partition}").is_dir()
        }

    def digests(self, topic: str, partition: int) -> dict[int, str]:
        """One digest of all .log bytes per replica."""
        found = {}
        for broker, path in self.replica_dirs(topic, partition).items():
            digest = hashlib.sha256()
            for segment in sorted(path.glob("*.log")):
                digest.update(segment.read_bytes())
            found[broker] = digest.hexdigest()
        return found


def _partitions(client: Any, topic: str) -> dict[int, Any]:
    """A topic's partitions by number; none if there is no such topic.

    CreateTopics is answered when one broker knows the topic, so another that does not is asked again, for a while.
    """
    deadline = time.monotonic() + HEARD_S
    while True:
        found = client.list_topics(topic, timeout=10).topics[topic]
        if found.error is None or time.monotonic() > deadline:
            return dict(found.partitions)
        time.sleep(0.05)
