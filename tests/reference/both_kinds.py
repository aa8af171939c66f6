"""A cluster of both kinds of broker, as the tests beside it see it."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.settings import ClusterSettings
from tests.support.kafka import kinds_file
from tests.support.real_cluster import RealCluster, eventually

NAMES = {"K": "Kafka", "O": "ours"}


class BothKinds:
    """`kinds` has a letter a broker: K is Apache Kafka, O is ours."""

    def __init__(self, cluster: RealCluster, kinds: str) -> None:
        self.cluster, self.kinds = cluster, kinds

    @cached_property
    def admin(self) -> KafkaClusterClient:
        return KafkaClusterClient(ClusterSettings.read("", self.cluster.admin_options))

    def close(self) -> None:
        if "admin" in self.__dict__:
            self.admin.close()

    def of(self, kind: str) -> list[int]:
        return [broker for broker, letter in enumerate(self.kinds) if letter == kind]

    def controller(self, unlike: int = -1) -> int:
        """Who is controller, as soon as it is not `unlike`."""
        found = eventually(lambda: (c := self.cluster.controller()[0]) not in (-1, unlike) and [c], "a controller", 60)
        return int(found[0])

    def controller_of(self, kind: str) -> int:
        """Let a broker of that kind be controller: the znode is deleted until one of them wins the race for it."""
        with self.cluster.zookeeper() as zk:
            for _ in range(40):
                held = self.controller()
                if self.kinds[held] == kind:
                    return held
                before = zk.exists("/controller")
                zk.delete("/controller")
                eventually(lambda b=before: (s := zk.exists("/controller")) and s.czxid != b.czxid, "another", 20)
        raise AssertionError(f"no broker of kind {kind} becomes controller")

    def kill(self, broker: int) -> None:
        self.cluster.cluster.stop_broker(broker, signal.SIGKILL)

    def stop(self, broker: int) -> None:
        self.cluster.cluster.stop_broker(broker, signal.SIGTERM)

    def turn(self, broker: int, kind: str) -> None:
        """The broker is of that kind from its next start on: same id, same address, same log directories."""
        letters = list(self.kinds)
        letters[broker] = kind
        self.kinds = "".join(letters)
        kinds_file(self.cluster.directory).write_text(self.kinds)

    def start(self, broker: int) -> None:
        self.cluster.cluster.start_broker(broker)

    @contextmanager
    def frozen(self, brokers: list[int]) -> Iterator[None]:
        """Those brokers stand still for the time of the block (shorter than their sessions)."""
        pids = [entry["pid"] for entry in self.cluster.description["brokers"] if entry["id"] in brokers]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def settled(self, topic: str, timeout_s: float = 60) -> None:
        """Wait until all replicas are in sync and their log files are the same bytes."""
        eventually(lambda: self.cluster.isrs_full(topic), f"every replica of {topic} in sync", timeout_s)
        for partition, found in self.cluster.describe(topic).items():
            replicas = len(found.replicas)
            eventually(
                lambda p=partition, n=replicas: (
                    (seen := self.cluster.digests(topic, p)) and len(seen) == n and len(set(seen.values())) == 1
                ),
                f"replicas of {topic}-{partition} are the same bytes",
                timeout_s,
            )

    def leads(self, topic: str, partition: int = 0) -> int:
        return int(self.cluster.describe(topic)[partition].leader)


def pause(seconds: float) -> None:
    """For what shows in time only, such as an ISR that must not shrink."""
    time.sleep(seconds)
