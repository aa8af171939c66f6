"""The whole platform on one machine: ZooKeeper, brokers and Airflow, started and stopped together."""

import shutil
from collections.abc import Callable, Iterator, Sequence
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

Say = Callable[[str], None]


class Platform:
    """The platform of one directory: DIR/cluster and DIR/airflow. Methods raise LocalError."""

    def __init__(
        self, directory: Path, say: Say = lambda text: None, broker_command: Sequence[str] = BROKER_COMMAND
    ) -> None:
        self.directory = directory.absolute()
        self.cluster = LocalCluster(self.directory / "cluster", say, broker_command)
        # Shared by all platforms, so that the next one need not compile them again; numba tells versions apart.
        self.airflow = Airflow(self.directory / "airflow", say, self.directory.parent / "kernels")

    def start(self, settings: Settings) -> None:
        """Start everything, independent parts at the same time; on failure, everything is stopped."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with files.locked(self.directory / "platform.lock"), ThreadPoolExecutor(max_workers=1) as beside:
            try:
                java = find_java(self.directory)
                prepared = beside.submit(self.airflow.prepare, java)
                self.cluster.start(settings)
                prepared.result()
                description = self.cluster.layout.read_description()
                reach = connections(description, self.cluster.layout.description)
                self.airflow.start(reach, java)
            except BaseException:
                # Also on Ctrl-C, and before the executor waits for its thread, which ends with its process.
                self.abandon()
                raise

    def stop(self) -> bool:
        """Stop everything: Airflow first, because its tasks use the cluster; False if nothing ran."""
        ran = self.airflow.stop()
        return self.cluster.stop() or ran

    def abandon(self) -> None:
        """Stop everything, and let no other thread start anything."""
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
        """For a new user: where everything is and how to log in."""
        description = self.cluster.layout.read_description()
        return [
            ("Airflow", self.airflow.url),
            ("log in as", f"admin, password {self.airflow.home.password()}"),
            ("other users", f"ops and viewer, in {self.airflow.home.passwords}"),
            ("bootstrap servers", str(description["bootstrap"])),
            ("ZooKeeper", str(description["zookeeper"])),
            ("described in", str(self.cluster.layout.description)),
        ]


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Raise LocalError if another process holds the same lock file."""
    with files.lock_or_refuse(path) as held:
        if not held:
            raise LocalError(f"another {what} runs in {path.parent}: wait for it, or work in another checkout")
        yield
