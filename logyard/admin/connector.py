"""Opens a cluster, its ZooKeeper and its launcher from settings; the only module with their real implementations.

Callers take a `Connector`, so that tests can pass `tests/support/memory_clients.MemoryConnector`.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from logyard.admin.cluster.reachability import why_unreachable
from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.ports import (
    ClusterUnreachable,
    DescribingClient,
    Ensemble,
    EnsembleUnreachable,
    Launcher,
    Pause,
)
from logyard.admin.recovery.witnesses import HOST_STATES, HostState
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.admin.zookeeper.ensemble import KazooEnsemble
from logyard.admin.zookeeper.znodes import KazooZnodes, ZnodeClient
from logyard.broker.errors import LogyardError
from logyard.broker.security import zookeeper_access
from logyard.broker.zk.access import Access

_PATIENCE_S = 120.0
_STATUS_PATIENCE_S = 30.0


class Connector(Protocol):
    """Opens the clients of a cluster. `cluster` raises ClusterUnreachable, `ensemble` EnsembleUnreachable."""

    def cluster(self, settings: ClusterSettings) -> DescribingClient: ...

    def ensemble(self, settings: ClusterSettings) -> Ensemble: ...

    def znodes(self, settings: ClusterSettings) -> ZnodeClient:
        """A session for whoever reads single znodes. Raises EnsembleUnreachable."""
        ...

    def launcher(self, start: Sequence[str], stop: Sequence[str] = (), status: Sequence[str] = ()) -> Launcher: ...

    def pause(self) -> Pause: ...

    def why_unreachable(self, settings: ClusterSettings, problem: ClusterUnreachable) -> str:
        """Explain which step of connecting to the brokers fails."""
        ...


class RealConnector:
    """Kafka's protocol, a real ZooKeeper, real processes, real time."""

    def cluster(self, settings: ClusterSettings) -> DescribingClient:
        return ClusterRequests(settings)

    def ensemble(self, settings: ClusterSettings) -> Ensemble:
        return KazooEnsemble(_zookeeper(settings), settings.request_timeout_s, _access(settings))

    def znodes(self, settings: ClusterSettings) -> ZnodeClient:
        return KazooZnodes(_zookeeper(settings), settings.request_timeout_s, _access(settings))

    def launcher(self, start: Sequence[str], stop: Sequence[str] = (), status: Sequence[str] = ()) -> Launcher:
        return CommandLauncher(start, stop, status)

    def pause(self) -> Pause:
        return RealPause()

    def why_unreachable(self, settings: ClusterSettings, problem: ClusterUnreachable) -> str:
        return why_unreachable(settings, problem)


def _zookeeper(settings: ClusterSettings) -> str:
    if settings.zookeeper is None:
        raise EnsembleUnreachable("this needs ZooKeeper: set `zookeeper` (host:port) in the connection's extra")
    return settings.zookeeper


def _access(settings: ClusterSettings) -> Access:
    """How to log in at ZooKeeper: by the connection's file, else by the worker's environment."""
    file = settings.zookeeper_config_file
    try:
        return zookeeper_access.of_tool(None if file is None else Path(file))
    except LogyardError as problem:
        raise EnsembleUnreachable(f"ZooKeeper's settings of this connection: {problem}") from None


class RealPause:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class CommandLauncher:
    """Starts, stops and queries a broker by commands, each a list of arguments that is run without a shell.

    `{broker_id}`, `{host}` and `{rack}` are filled in; any other brace is refused. Host and rack may contain only
    characters of names, so that nothing in a registration becomes an option or a path. The status command prints one of
    `witnesses.HOST_STATES` first; its exit status does not matter.
    """

    def __init__(self, start: Sequence[str], stop: Sequence[str] = (), status: Sequence[str] = ()) -> None:
        self._start, self._stop, self._status = tuple(start), tuple(stop), tuple(status)

    @property
    def can_stop(self) -> bool:
        return bool(self._stop)

    def start(self, broker: int, host: str = "", rack: str = "") -> None:
        _run("starting", broker, fill("broker_start_command", self._start, broker, host, rack))

    def stop(self, broker: int, host: str = "", rack: str = "") -> bool:
        if not self._stop:
            return False
        _run("stopping", broker, fill("broker_stop_command", self._stop, broker, host, rack))
        return True

    def host_state(self, broker: int, host: str = "", rack: str = "") -> HostState:
        if not self._status:
            return HostState.UNKNOWN
        try:
            arguments = fill("broker_status_command", self._status, broker, host, rack)
            done = _completed(arguments, _STATUS_PATIENCE_S)
        except (LogyardError, OSError, subprocess.TimeoutExpired):
            return HostState.UNKNOWN
        said = done.stdout.split()
        return HOST_STATES.get(said[0].lower(), HostState.UNKNOWN) if said else HostState.UNKNOWN


def _completed(arguments: Sequence[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def _run(doing: str, broker: int, arguments: Sequence[str]) -> None:
    """Run a launcher's command to its end. Raises LogyardError with its last line of output."""
    try:
        done = _completed(arguments, _PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise LogyardError(f"{doing} broker {broker} by {arguments[0]}: {problem}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["silent"]
        raise LogyardError(f"{doing} broker {broker}: {arguments[0]} ended with {done.returncode}: {said[-1]}")


def fill(name: str, command: Sequence[str], broker: int, host: str = "", rack: str = "") -> list[str]:
    """Fill in the placeholders of a launcher's arguments. Raises BadSettings with what is wrong."""
    if not command:
        raise BadSettings(f"{name}: a list of arguments is expected")
    values = {"{broker_id}": str(broker), "{host}": host, "{rack}": rack}
    for placeholder, value in values.items():
        if any(placeholder in argument for argument in command):
            _check_value(name, placeholder, value)
    filled = []
    for argument in command:
        for placeholder, value in values.items():
            argument = argument.replace(placeholder, value)
        if "{" in argument or "}" in argument:
            raise BadSettings(f"{name}: only {{broker_id}}, {{host}} and {{rack}} can be used in {argument!r}")
        filled.append(argument)
    return filled


def _check_value(name: str, placeholder: str, value: str) -> None:
    plain = value.replace("-", "").replace("_", "").replace(".", "").replace(":", "")
    if not value or value.startswith("-") or not (plain.isascii() and plain.isalnum()):
        raise BadSettings(f"{name}: {placeholder} is {value!r}: only letters, digits and . _ : - are allowed")
