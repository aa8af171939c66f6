"""A recovery of a real cluster, as a worker of Airflow makes it: over the wire, ZooKeeper, and commands for brokers."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from logyard.admin.connector import RealConnector
from logyard.admin.recovery.case import Expectation, Limits, Recovery
from logyard.admin.recovery.recovery import Recoverer
from logyard.admin.settings import ClusterSettings
from tests.support.real_cluster import RealCluster


def settings_of(cluster: RealCluster, **more: Any) -> ClusterSettings:
    extra = {
        "zookeeper": cluster.description["zookeeper"],
        "cluster_file": str(cluster.directory / "cluster.json"),
        "request_timeout_s": 5,
        "total_timeout_s": 30,
        **more,
    }
    return ClusterSettings.read(cluster.bootstrap, extra, username="airflow", password="wrong")


def recover(
    cluster: RealCluster,
    expectation: Expectation,
    *,
    limits: Limits | None = None,
    settings: ClusterSettings | None = None,
    said: list[str] | None = None,
) -> Recovery:
    """Recover it by `logyard cluster`'s commands."""
    settings, connector = settings or settings_of(cluster), RealConnector()
    command = [str(Path(sys.executable).with_name("logyard")), "cluster"]
    place = ["--dir", str(cluster.directory), "--id", "{broker_id}"]
    ensemble = connector.ensemble(settings)
    try:
        return Recoverer(
            ensemble=ensemble,
            client=connector.cluster(settings),
            launcher=connector.launcher(
                [*command, "start-broker", *place],
                [*command, "stop-broker", *place, "--signal", "KILL"],
                [*command, "broker-status", *place],
            ),
            pause=connector.pause(),
            say=(lambda line: None) if said is None else said.append,
            limits=limits or Limits(total_s=150, probe_s=3, grace_s=15),
            expectation=expectation,
        ).run()
    finally:
        ensemble.close()


class Firewall:
    """Between this process and some ports: connections come about, and nothing gets through in either direction.

    Whoever else talks to those ports (brokers among themselves, the launcher's commands) is not behind it.
    """

    def __init__(self) -> None:
        self.ports: set[int] = set()
        self._hole = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._taken: list[socket.socket] = []

    @property
    def hole(self) -> int:
        return int(self._hole.getsockname()[1])

    def swallow(self) -> None:
        while True:
            try:
                self._taken.append(self._hole.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self._hole.shutdown(socket.SHUT_RDWR)
        self._hole.close()
        for link in self._taken:
            link.close()


@contextmanager
def firewall() -> Iterator[Firewall]:
    """A firewall of this process's own; `ports` says what is behind it."""
    made = Firewall()
    thread = threading.Thread(target=made.swallow, daemon=True)
    thread.start()

    def through(name: str) -> Any:
        real = getattr(socket.socket, name)

        def connect(self: socket.socket, address: Any) -> Any:
            shut = isinstance(address, tuple) and address[1] in made.ports
            return real(self, ("127.0.0.1", made.hole) if shut else address)

        return connect

    try:
        with mock.patch.multiple(socket.socket, connect=through("connect"), connect_ex=through("connect_ex")):
            yield made
    finally:
        made.close()
        thread.join(5)
