"""The options that commands share, and how a command opens the cluster or the ZooKeeper it is told to."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.connector import Connector, RealConnector
from logyard.admin.ports import ClusterClient
from logyard.admin.zookeeper.znodes import KazooZnodes, require_cluster
from logyard.broker.errors import LogyardError
from logyard.broker.security import zookeeper_access
from logyard.cli import command_config
from logyard.local.errors import LocalError

Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap-server", help="host:port[,host:port…] of brokers; the usual choice.")
]
RequiredBootstrap = Annotated[str, typer.Option("--bootstrap-server", help="host:port[,host:port…] of brokers.")]
ZooKeeper = Annotated[
    str | None,
    typer.Option("--zookeeper", help="host:port[/chroot]: read and write znodes directly, as before Kafka 3.0."),
]
RequiredZooKeeper = Annotated[str, typer.Option("--zookeeper", help="host:port[,host:port…][/chroot].")]
ZkTlsConfig = Annotated[
    Path | None,
    typer.Option(
        "--zk-tls-config-file",
        help="File of properties for the connection to ZooKeeper: zookeeper.ssl.*, logyard.jaas.config.file.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option("--command-config", help="File of client properties for the connection to the brokers."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

T = TypeVar("T")

# The connector of all commands; tests set their own.
connector: Connector = RealConnector()
open_requests = ClusterRequests
open_znodes = KazooZnodes


def properties(config_file: Path | None) -> dict[str, str]:
    """Read the file of --command-config, if there is one; raises LocalError."""
    return command_config.read(config_file) if config_file is not None else {}


@contextmanager
def cluster(bootstrap: str, config_file: Path | None) -> Iterator[ClusterClient]:
    """Open a client of the brokers; raises LocalError for a wrong --command-config, ClusterUnreachable at the first
    use."""
    client = connector.cluster(command_config.settings(bootstrap, properties(config_file)))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def requests(bootstrap: str, config_file: Path | None) -> Iterator[ClusterRequests]:
    """As `cluster`, for commands whose requests have no method of `ClusterClient`."""
    with requests_as(bootstrap, properties(config_file)) as client:
        yield client


@contextmanager
def requests_as(bootstrap: str, given: Mapping[str, str]) -> Iterator[ClusterRequests]:
    """The same, by properties that were read before."""
    client = open_requests(command_config.settings(bootstrap, given))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def ensemble(connect: str, zk_tls_config: Path | None = None, *, may_be_new: bool = False) -> Iterator[KazooZnodes]:
    """Open the znodes of one cluster; raises EnsembleUnreachable if there is none, unless `may_be_new`.

    The JAAS file of the environment (KAFKA_OPTS) counts with and without `zk_tls_config`.
    """
    znodes = open_znodes(connect, access=zookeeper_access.of_tool(zk_tls_config))
    try:
        if not may_be_new:
            require_cluster(znodes, connect)
        yield znodes
    finally:
        znodes.close()


def one_way(bootstrap: str | None, zookeeper: str | None, config_file: Path | None) -> None:
    """Raise LocalError unless exactly one way is given."""
    if (bootstrap is None) == (zookeeper is None):
        raise LocalError("name the cluster: --bootstrap-server host:port, or --zookeeper host:port[/chroot]")
    if zookeeper is not None and config_file is not None:
        raise LocalError("--command-config is for --bootstrap-server: leave it out with --zookeeper")


def read_file(option: str, path: Path) -> str:
    """The text of a file that an option names; raises LocalError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "no UTF-8 text"
        raise LocalError(f"{option} {path}: {reason}") from None


def parse_file(option: str, path: Path, parse: Callable[[str], T]) -> T:
    """What `parse` makes of the text of a file that an option names; raises LocalError, which names both."""
    text = read_file(option, path)
    try:
        return parse(text)
    except LogyardError as problem:
        raise LocalError(f"{option} {path}: {problem}") from None
