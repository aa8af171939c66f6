"""What the steps need of a platform besides the protocols of its clients: its disks, its controller, a kill."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from logyard.local import identity
from logyard.local.cluster import broker_name
from logyard.local.demo import cluster_view
from logyard.local.demo.cluster_view import Segments
from logyard.local.errors import LocalError
from logyard.local.platform import Platform
from logyard.login import librdkafka, security


class Site(Protocol):
    """A platform, wherever its parts run. Methods raise LocalError."""

    @property
    def reach(self) -> Mapping[str, str]:
        """The settings with which stock clients reach the cluster, as its super user if it is secured."""

    @property
    def destination(self) -> str:
        """Where exports go, as the jobs see it."""

    def exported(self) -> Path:
        """Return a folder of this machine with all that was exported."""

    def segments(self, topic: str) -> Segments:
        """Return the segments that are on the brokers' disks."""

    def controller(self) -> tuple[int | None, int]:
        """Return the controller's broker id as ZooKeeper has it, and the controller epoch."""

    def kill(self, broker: int) -> None:
        """End a broker's process at once."""

    def await_restart(self) -> None:
        """Wait until brokers that ended are back, where something else than Airflow starts them."""


class LocalSite:
    """The platform of one machine."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    @property
    def reach(self) -> Mapping[str, str]:
        login = librdkafka.options(security.of(self._platform.cluster.login()))
        return {"bootstrap.servers": str(self._platform.cluster.layout.read_description()["bootstrap"]), **login}

    @property
    def destination(self) -> str:
        return str(self.exported())

    def exported(self) -> Path:
        return self._platform.directory / "export"

    def segments(self, topic: str) -> Segments:
        brokers = self._platform.cluster.layout.read_description()["brokers"]
        return cluster_view.segments({int(broker["id"]): broker["log_dirs"] for broker in brokers}, topic)

    def controller(self) -> tuple[int | None, int]:
        with self._platform.cluster.registrations() as registered:
            return registered.controller(), registered.controller_epoch()

    def kill(self, broker: int) -> None:
        entry = self._platform.cluster.processes.get(broker_name(broker))
        if entry is None or entry.identity is None or not identity.send(entry.identity, signal.SIGKILL):
            raise LocalError(f"the process of broker {broker} was not found")

    def await_restart(self) -> None:
        """Airflow's recovery has started them."""
