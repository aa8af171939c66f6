"""What the demo's steps need of the platform in containers, from the machine outside."""

import ast
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logyard.local.demo import cluster_view
from logyard.local.demo.cluster_view import Segments
from logyard.local.errors import LocalError
from logyard.login import jaas
from tests.compose.composed import BOOTSTRAP, Composed, container, eventually

BROKERS = {1: "broker1", 2: "broker2", 3: "broker3"}
EXPORT = "/var/lib/logyard-exports/flights"
ZOOKEEPER = "zookeeper1:2181,zookeeper2:2181,zookeeper3:2181/logyard"


class ComposedSite:
    """A `Site` whose files are read through containers, and whose brokers are reached by the HOST listener."""

    def __init__(self, composed: Composed, directory: Path, asked: str = "spark-master") -> None:
        """:param asked: the service whose container looks at ZooKeeper."""
        self._composed = composed
        self._asked = asked
        self._directory = directory
        authority = directory / "ca.pem"
        # As the head of the compose file tells a user.
        authority.write_text(eventually(lambda: composed.exec("broker1", "cat", "/run/logyard/ca.pem"), "broker 1"))
        properties = composed.exec("broker1", "cat", "/var/lib/logyard/security/admin.properties")
        login = jaas.parse(properties.partition("sasl.jaas.config=")[2].partition("\n")[0]).options
        self._reach = {
            "bootstrap.servers": BOOTSTRAP,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": login["username"],
            "sasl.password": login["password"],
            "ssl.ca.location": str(authority),
        }

    @property
    def reach(self) -> Mapping[str, str]:
        return self._reach

    @property
    def destination(self) -> str:
        return EXPORT

    def exported(self) -> Path:
        """Copy the exported files out of a host on which no driver runs."""
        folder = self._directory / "export"
        shutil.rmtree(folder, ignore_errors=True)
        self._composed.podman.run("cp", f"{container('spark-worker2')}:{EXPORT}", str(folder))
        return folder

    def segments(self, topic: str) -> Segments:
        found: dict[tuple[int, int], dict[int, int]] = {}
        for broker, service in BROKERS.items():
            ask = f"print(cluster_view.segments({{{broker}: ['/var/lib/logyard/log']}}, {topic!r}))"
            found |= self._ask(service, f"from logyard.local.demo import cluster_view; {ask}")
        return found

    def controller(self) -> tuple[int | None, int]:
        lines = (
            "from logyard.broker.zk.access import Access",
            "from logyard.local.registrations import connect",
            f"with connect({ZOOKEEPER!r}, Access()) as registered:",
            "    print((registered.controller(), registered.controller_epoch()))",
        )
        found: tuple[int | None, int] = self._ask(self._asked, "\n".join(lines))
        return found

    def kill(self, broker: int) -> None:
        self._composed.kill(BROKERS[broker])

    def await_restart(self) -> None:
        eventually(self.in_sync, "three brokers, all replicas in sync", 180)

    def in_sync(self) -> bool:
        view = cluster_view.look(self.reach)
        return view.brokers == BROKERS.keys() and not view.unled() and not view.under_replicated()

    def _ask(self, service: str, program: str) -> Any:
        """Run a program of Python in a container. Returns the value that it prints."""
        said = self._composed.exec(service, "python", "-c", program)
        try:
            return ast.literal_eval(said)
        except (SyntaxError, ValueError):
            raise LocalError(f"{service} says {said[-500:]!r}") from None
