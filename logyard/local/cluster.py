"""A cluster on this machine: ZooKeeper and N brokers, started together, found again by its directory."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from logyard.broker.errors import LogyardError
from logyard.broker.security import zookeeper_access
from logyard.broker.zk.access import ANYBODY, Access
from logyard.local import files, registrations, wire, zookeeper
from logyard.local.errors import LocalError
from logyard.local.java import find_java
from logyard.local.layout import BrokerEntry, Layout, Settings
from logyard.local.ports import HOST, Ports, is_free
from logyard.local.processes import GRACE_S, Processes, Say
from logyard.local.registrations import Registration, Registrations
from logyard.local.wire_login import Credentials

if TYPE_CHECKING:
    from logyard.local.security import ClusterSecurity

READY_S = 120.0
OLD_SESSION_S = 130.0  # longer than the longest session that ZooKeeper grants
PORT_TRIES = 5
POLL_S = 0.1
WORD_TRIES = 3

# -P: the directory it runs in is no place to import from.
BROKER_COMMAND = (sys.executable, "-P", "-m", "logyard.broker")


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker's status: its process, its registration, its answer."""

    id: int
    pid: int | None
    port: int
    registered: bool
    answers: bool
    is_controller: bool


@dataclass(slots=True)
class _Start:
    """A starting broker: the registration that it must replace, and how many ports were taken by others."""

    broker: int
    port: int
    previous: Registration | None
    lost_ports: int = 0


class LocalCluster:
    """The cluster of one directory. Its methods raise LocalError, whose text is one line that says what to do."""

    def __init__(
        self, directory: Path, say: Say = lambda text: None, broker_command: Sequence[str] = BROKER_COMMAND
    ) -> None:
        self.layout = Layout(directory)
        self.processes = Processes(self.layout.directory)
        self._ports = Ports(self.layout.directory)
        self._say = say
        self._broker_command = tuple(broker_command)

    def start(self, settings: Settings) -> None:
        """Start what does not run yet, and wait until all of it serves; after a failure, stop what was started."""
        settings.check()
        self.layout.directory.mkdir(parents=True, exist_ok=True)
        with files.locked(self.layout.lock):
            # Not sooner: another command may have started them while this one waited for the lock.
            before = {name for name, entry in self.processes.entries().items() if entry.alive}
            was_open = self.check(settings)
            try:
                address = self._start_zookeeper(settings)
                security = self._security(settings)
                if security is not None:
                    access = self._zookeeper_access(settings)
                    security.prepare_znodes(address, access, migrates=was_open and settings.zookeeper is None)
                self.layout.keep_settings(settings)
                with self._registrations(address, settings) as registered:
                    self._start_brokers(settings.ids, settings, address, registered)
                    self._describe(settings, address, registered)
            except BaseException:
                # Also on Ctrl-C: half a cluster is of no use.
                self._end(name for name in self.processes.entries() if name not in before)
                raise

    def check(self, settings: Settings) -> bool:
        """Return whether the cluster has been used without security.

        Raises LocalError if it cannot be started with these settings; what runs goes on.
        """
        settings.check()
        return self.layout.check_security(settings, runs=any(one.alive for one in self.processes.entries().values()))

    def start_broker(self, broker: int) -> None:
        """Start one broker of this cluster again and wait until it serves; do nothing if it runs."""
        settings = self.layout.settings()
        _check_id(broker, settings)
        address = self.address
        with files.locked(self.layout.lock), self._registrations(address, settings) as registered:
            ran = self.processes.alive(broker_name(broker))
            try:
                self._start_brokers([broker], settings, address, registered)
            except BaseException:
                if not ran:
                    self._end([broker_name(broker)])
                raise
            self._describe(settings, address, registered)

    def stop_broker(self, broker: int, number: signal.Signals = signal.SIGTERM) -> bool:
        """Stop one broker with that signal. Returns False if it did not run."""
        settings = self.layout.settings()
        _check_id(broker, settings)
        with files.locked(self.layout.lock):
            ran = self.processes.stop_together([broker_name(broker)], number=number)
            with self._registrations(self.address, settings) as registered:
                self._describe(settings, self.address, registered)
        return ran

    def broker_state(self, broker: int) -> str:
        """Return a broker's state on its own host: answers, silent, starting (its port is closed) or gone."""
        settings = self.layout.settings()
        _check_id(broker, settings)
        port = self._ports.known().get(broker_name(broker), 0)
        for _ in range(WORD_TRIES):
            if not self.processes.alive(broker_name(broker)):
                return "gone"
            try:
                wire.ask_api_versions(HOST, port, credentials=self._credentials(settings))
                return "answers"
            except wire.Refused:
                return "starting"
            except wire.WireError:
                continue
        return "silent"

    def login(self) -> dict[str, str]:
        """Return how clients log in as the super user, by the names of an Airflow connection; empty without security.

        Contains the password.
        """
        settings = self.layout.settings()
        security = self._security(settings)
        return security.login(own_zookeeper=settings.zookeeper is None) if security is not None else {}

    def stop(self, grace_s: float = GRACE_S) -> bool:
        """Stop the brokers, then ZooKeeper. Returns False if nothing ran."""
        ran = self._end(self.processes.entries(), grace_s)
        self.layout.description.unlink(missing_ok=True)
        return ran

    def status(self) -> list[BrokerStatus]:
        """Return the status of all brokers."""
        settings = self.layout.settings()
        with self._registrations(self.address, settings) as registered:
            controller = registered.controller()
            credentials = self._credentials(settings)
            return [self._status_of(broker, registered, controller, credentials) for broker in settings.ids]

    @property
    def address(self) -> str:
        """ZooKeeper's address with its chroot. Raises LocalError while the cluster is down."""
        return str(self.layout.read_description()["zookeeper"])

    def registrations(self) -> AbstractContextManager[Registrations]:
        """Return a session for the block with the cluster's ZooKeeper, under the launcher's identity."""
        return self._registrations(self.address, self.layout.settings())

    def _registrations(self, address: str, settings: Settings) -> AbstractContextManager[Registrations]:
        return registrations.connect(address, self._zookeeper_access(settings))

    def _security(self, settings: Settings) -> "ClusterSecurity | None":
        """Return the security of this cluster, None if it has none. Its package is needed only then."""
        if not settings.secure:
            return None
        from logyard.local.security import ClusterSecurity

        return ClusterSecurity(self.layout.directory)

    def _credentials(self, settings: Settings) -> Credentials | None:
        """Return how the launcher connects to the brokers; None: in plain text."""
        security = self._security(settings)
        if security is None:
            return None
        return security.launcher()

    def _zookeeper_access(self, settings: Settings) -> Access:
        """Return the launcher's identity at ZooKeeper, which is the brokers'. Raises LocalError for bad settings.

        At a ZooKeeper of others it is that of the brokers' settings `zookeeper.ssl.*` and `logyard.jaas.config.file`.
        """
        if settings.zookeeper is None:
            security = self._security(settings)
            return ANYBODY if security is None else security.zookeeper_access()
        try:
            return zookeeper_access.of_texts(settings.config)
        except (LogyardError, ValueError) as problem:
            raise LocalError(f"--config: {problem}") from None

    def _start_zookeeper(self, settings: Settings) -> str:
        if settings.zookeeper is not None:
            return settings.zookeeper
        self._say("starting ZooKeeper")
        java = find_java(self.layout.directory)
        security = self._security(settings)
        jaas = security.zookeeper_jaas if security is not None else None
        directory, wanted = self.layout.directory, settings.zookeeper_port
        port = zookeeper.start(directory, self.processes, self._ports, java, wanted, jaas)
        return f"{HOST}:{port}"

    def _start_brokers(
        self, brokers: Iterable[int], settings: Settings, address: str, registered: Registrations
    ) -> None:
        down = [broker for broker in brokers if not self.processes.alive(broker_name(broker))]
        if down:
            self._say(f"starting broker{'s' if len(down) > 1 else ''} {', '.join(map(str, down))}")
        starts = []
        for broker in down:
            # Two brokers must never have the same id: wait until the dead one's session has ended.
            self._await_unregistered(broker, registered)
            port = self._ports.choose(broker_name(broker), settings.port_of(broker))
            starts.append(_Start(broker, port, registered.get(broker)))
            self._launch(broker, port, settings, address)
        self._await_serving(starts, settings, address, registered)

    def _launch(self, broker: int, port: int, settings: Settings, address: str) -> None:
        security = self._security(settings)
        own = settings.zookeeper is None
        secured = security.broker_keys(broker, own_zookeeper=own) if security is not None else {}
        path = self.layout.write_properties(broker, port, address, settings, secured)
        command = [*self._broker_command, "--config", str(path), "--strict"]
        # A task of Airflow may be starting it: the broker must not get Airflow's keys.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.processes.start(broker_name(broker), command, environment=variables)

    def _await_unregistered(self, broker: int, registered: Registrations) -> None:
        deadline = time.monotonic() + OLD_SESSION_S
        found = registered.get(broker)
        while found is not None:
            if time.monotonic() > deadline:
                raise LocalError(
                    f"broker id {broker} is registered by {found.host}:{found.port}: stop that broker first"
                )
            time.sleep(POLL_S)
            found = registered.get(broker)

    def _await_serving(self, starts: list[_Start], settings: Settings, address: str, registered: Registrations) -> None:
        deadline = time.monotonic() + READY_S
        waiting = list(starts)
        expected = {start.broker for start in starts}
        credentials = self._credentials(settings)
        while waiting:
            for start in list(waiting):
                if not self.processes.alive(broker_name(start.broker)):
                    self._try_other_port(start, settings, address)
                elif self._serves(start, expected, registered, credentials):
                    waiting.remove(start)
            if waiting and time.monotonic() > deadline:
                ids = ", ".join(str(start.broker) for start in waiting)
                raise LocalError(f"brokers {ids} do not serve after {READY_S:.0f} s: see {self.processes.logs}")
            if waiting:
                time.sleep(POLL_S)

    def _serves(
        self, start: _Start, expected: set[int], registered: Registrations, credentials: Credentials | None
    ) -> bool:
        """Whether a broker has registered again, and its metadata has a controller and all starting brokers."""
        found = registered.get(start.broker)
        # Kafka writes a port for PLAINTEXT only.
        is_old = found is None or found == start.previous
        if is_old or (credentials is None and found is not None and found.port != start.port):
            return False
        try:
            wire.ask_api_versions(HOST, start.port, credentials=credentials)
            view = wire.ask_metadata(HOST, start.port, credentials=credentials)
        except wire.WireError:
            return False
        return expected <= view.brokers.keys() and view.controller in view.brokers

    def _try_other_port(self, start: _Start, settings: Settings, address: str) -> None:
        """A broker ended while it was starting: if its port was taken meanwhile, choose another."""
        name = broker_name(start.broker)
        if is_free(start.port):
            raise LocalError(self.processes.failure(name))
        if settings.port_base is not None:
            raise LocalError(f"port {start.port} for broker {start.broker} is taken: choose another --port-base")
        start.lost_ports += 1
        if start.lost_ports > PORT_TRIES:
            raise LocalError(
                f"broker {start.broker} found no port that stays free: see {self.processes.logs}/{name}.log"
            )
        start.port = self._ports.again(name)
        self._launch(start.broker, start.port, settings, address)

    def _describe(self, settings: Settings, address: str, registered: Registrations) -> None:
        known = self._ports.known()
        entries = []
        for broker in settings.ids:
            entry = self.processes.get(broker_name(broker))
            up = entry is not None and entry.alive
            found = registered.get(broker) if up else None
            entries.append(
                BrokerEntry(
                    id=broker,
                    pid=entry.pid if entry is not None and up else None,
                    host=HOST,
                    port=known[broker_name(broker)],
                    http_port=found.http_port if found is not None else None,
                    log_dirs=self.layout.log_dirs(broker, settings),
                )
            )
        security = self._security(settings)
        if security is not None:
            security.write_client_file(",".join(f"{entry.host}:{entry.port}" for entry in entries))
        self.layout.write_description(address, entries, security.client_file if security is not None else None)

    def _status_of(
        self, broker: int, registered: Registrations, controller: int | None, credentials: Credentials | None
    ) -> BrokerStatus:
        entry = self.processes.get(broker_name(broker))
        port = self._ports.known().get(broker_name(broker), 0)
        try:
            answers = bool(wire.ask_api_versions(HOST, port, credentials=credentials))
        except wire.WireError:
            answers = False
        pid = entry.pid if entry is not None and entry.alive else None
        return BrokerStatus(broker, pid, port, registered.get(broker) is not None, answers, controller == broker)

    def _end(self, names: Iterable[str], grace_s: float = GRACE_S) -> bool:
        """Stop those brokers together, then ZooKeeper, which a broker needs for a clean stop."""
        chosen = list(names)
        brokers = [name for name in chosen if name != zookeeper.NAME]
        ran = self.processes.stop_together(brokers, grace_s=grace_s)
        servers = [name for name in chosen if name == zookeeper.NAME]
        return self.processes.stop_together(servers, grace_s=grace_s) or ran


def broker_name(broker: int) -> str:
    """Return a broker's name in processes.json, ports.json and logs."""
    return f"broker-{broker}"


def _check_id(broker: int, settings: Settings) -> None:
    if broker not in settings.ids:
        raise LocalError(f"--id {broker}: this cluster has brokers {', '.join(map(str, settings.ids))}")
