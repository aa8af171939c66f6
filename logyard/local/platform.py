"""The whole platform on one machine: ZooKeeper, brokers and Airflow, started and stopped together."""

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from logyard.local import files, interrupts
from logyard.local.airflow.processes import Airflow
from logyard.local.airflow.settings import connections
from logyard.local.cluster import BROKER_COMMAND, LocalCluster
from logyard.local.errors import LocalError
from logyard.local.java import find_java
from logyard.local.layout import Settings
from logyard.local.processes import Say

# Of the plugin's view (operators/links.py), which this package does not import.
PAGE = "/plugin/logyard"


class Platform:
    """The platform of one directory: DIR/cluster and DIR/airflow. Methods raise LocalError."""

    def __init__(
        self,
        directory: Path,
        say: Say = lambda text: None,
        broker_command: Sequence[str] = BROKER_COMMAND,
        own_dags: Path | None = None,
    ) -> None:
        """`own_dags`: the folder of the user's DAGs, made if it is missing; None: the packaged DAGs only."""
        self.directory = directory.absolute()
        self.cluster = LocalCluster(self.directory / "cluster", say, broker_command)
        # Compiled kernels are shared by all platforms, so that each need not compile them; numba keeps versions apart.
        own = own_dags.absolute() if own_dags is not None else None
        self.airflow = Airflow(self.directory / "airflow", say, self.directory.parent / "kernels", own)

    def start(self, settings: Settings) -> None:
        """Start everything, independent parts at the same time; after a failure, stop everything.

        Settings that cannot be used stop nothing.
        """
        self.cluster.check(settings)
        self.directory.mkdir(parents=True, exist_ok=True)
        with files.locked(self.directory / "platform.lock"), ThreadPoolExecutor(max_workers=1) as beside:
            try:
                java = find_java(self.directory)
                prepared = beside.submit(self.airflow.prepare, java)
                # What acks=all acknowledges is on two brokers, as in docker-compose.yaml.
                self.cluster.start(settings.durable())
                prepared.result()
                description = self.cluster.layout.read_description()
                reach = connections(description, self.cluster.layout.description, login=self.cluster.login())
                self.airflow.start(reach, java)
            except BaseException:
                # Also on Ctrl-C, and before the executor waits for its thread, which ends with its process.
                self.abandon()
                raise

    def stop(self) -> bool:
        """Stop everything: Airflow first, because its tasks use the cluster. Returns False if nothing ran."""
        try:
            ran = self.airflow.stop()
        finally:  # where a part of Airflow does not end, the brokers do all the same
            ran_too = self.cluster.stop()
        return ran or ran_too

    def abandon(self) -> None:
        """Stop everything, and prevent other threads from starting anything."""
        with interrupts.ignored():
            self.airflow.processes.close()
            self.cluster.processes.close()
            self.stop()

    def clear(self) -> None:
        """Stop what still runs, and remove all files of the platform."""
        self.stop()
        for name in ("cluster", "airflow", "export", "java"):
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def addresses(self) -> list[tuple[str, str]]:
        """Return what a new user needs, as (name, value): addresses, and how to log in."""
        description = self.cluster.layout.read_description()
        told = [
            ("Airflow", self.airflow.url),
            ("the cluster's page", f"{self.airflow.url}{PAGE}"),
            ("log in as", f"admin, password {self.airflow.home.password()}"),
            ("other users", f"ops and viewer, in {self.airflow.home.passwords}"),
            ("bootstrap servers", str(description["bootstrap"])),
            ("ZooKeeper", str(description["zookeeper"])),
            ("described in", str(self.cluster.layout.description)),
        ]
        if self.airflow.home.own_dags is not None:
            told.append(("your DAGs", str(self.airflow.home.own_dags)))
        if "command_config" in description:
            told.append(("its log-in", f"--command-config {description['command_config']}"))
        return told


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Raise LocalError if another process holds the same lock file."""
    with files.lock_or_refuse(path) as held:
        if not held:
            raise LocalError(f"another {what} runs in {path.parent}: wait for it, or work in another checkout")
        yield
