"""`logyard cluster`: ZooKeeper and brokers on this machine."""

import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from logyard.cli.progress import say
from logyard.local import interrupts
from logyard.local.cluster import LocalCluster
from logyard.local.errors import LocalError
from logyard.local.layout import Settings

app = typer.Typer(
    help="Start, stop and look at a cluster on this machine.", no_args_is_help=True, rich_markup_mode=None
)

Directory = Annotated[Path, typer.Option("--dir", help="Where the cluster keeps its files and its cluster.json.")]
BrokerId = Annotated[int, typer.Option("--id", help="Which broker, counted from 0.")]


@app.command()
def start(
    directory: Directory,
    brokers: Annotated[int, typer.Option("--brokers", help="How many brokers.")] = 3,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            help="HOST:PORT[/chroot] of a ZooKeeper that already runs; by default one is started. "
            "If it is secured, give --config zookeeper.ssl.… and logyard.jaas.config.file.",
        ),
    ] = None,
    port_base: Annotated[
        int | None,
        typer.Option(
            "--port-base", help="Broker N listens on this port plus N, ZooKeeper on the port after the last broker's."
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", help="key=value for every broker's server.properties; repeatable.")
    ] = None,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="TLS, log-ins (SCRAM) and ACLs; certificates and passwords are made in DIR."),
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in the foreground; when this command ends, everything ends.")
    ] = False,
) -> None:
    """Start ZooKeeper and the brokers, wait until all of them serve, and write DIR/cluster.json.

    Example:

    \b
        logyard cluster start --brokers 3 --dir /tmp/yard
        logyard cluster start --brokers 3 --dir /tmp/safe --secure
        logyard cluster start --brokers 1 --dir /tmp/one --config log.retention.hours=1 --foreground
    """
    settings = Settings(brokers, zookeeper, port_base, parse_config(config or []), secure)
    cluster = LocalCluster(directory, say=say)
    if not foreground:
        cluster.start(settings)
        _print_addresses(cluster)
        return
    ran = any(entry.alive for entry in cluster.processes.entries().values())
    is_up = False
    try:
        cluster.start(settings)
        is_up = True
        _print_addresses(cluster)
        _stay(cluster)
    finally:
        # A start that is refused ends what it has started itself, and nothing of a cluster that ran before.
        if is_up or not ran:
            with interrupts.ignored():
                cluster.stop()


@app.command()
def stop(directory: Directory) -> None:
    """Stop every broker, then ZooKeeper; the files stay.

    Example:

    \b
        logyard cluster stop --dir /tmp/yard
    """
    with interrupts.ignored():
        ran = LocalCluster(directory).stop()
    typer.echo("stopped" if ran else "nothing ran")


@app.command("start-broker")
def start_broker(directory: Directory, broker: BrokerId) -> None:
    """Start one broker of the cluster again and wait until it serves.

    Example:

    \b
        logyard cluster start-broker --dir /tmp/yard --id 1
    """
    LocalCluster(directory, say=say).start_broker(broker)
    typer.echo(f"broker {broker} serves")


@app.command("stop-broker")
def stop_broker(
    directory: Directory,
    broker: BrokerId,
    number: Annotated[
        str, typer.Option("--signal", help="TERM lets the broker hand over its partitions first; KILL is a crash.")
    ] = "TERM",
) -> None:
    """Stop one broker.

    Example:

    \b
        logyard cluster stop-broker --dir /tmp/yard --id 1 --signal KILL
    """
    with interrupts.ignored():
        ran = LocalCluster(directory).stop_broker(broker, parse_signal(number))
    typer.echo(f"broker {broker} stopped" if ran else f"broker {broker} did not run")


@app.command("broker-status")
def broker_status(directory: Directory, broker: BrokerId) -> None:
    """Print the state of one broker as its own host sees it: answers, silent, starting or gone.

    Recovery runs this before it stops or starts a broker (`broker_status_command`).

    Example:

    \b
        logyard cluster broker-status --dir /tmp/yard --id 1
    """
    typer.echo(LocalCluster(directory).broker_state(broker))


@app.command()
def status(directory: Directory) -> None:
    """Show every broker; the exit status is 0 only when all of them serve.

    Example:

    \b
        logyard cluster status --dir /tmp/yard
    """
    found = LocalCluster(directory).status()
    for broker in found:
        state = "serves" if broker.answers and broker.registered else "registered" if broker.registered else "down"
        controller = "\tcontroller" if broker.is_controller else ""
        typer.echo(f"broker {broker.id}\tpid {broker.pid or '-'}\tport {broker.port}\t{state}{controller}")
    if not all(broker.answers and broker.registered for broker in found):
        raise LocalError(f"not every broker serves: see {LocalCluster(directory).processes.logs}")


def parse_config(pairs: list[str]) -> dict[str, str]:
    """Parse `key=value` options; raises LocalError with the invalid one."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise LocalError(f"--config {pair}: write it as key=value")
        found[key.strip()] = value.strip()
    return found


def parse_signal(name: str) -> signal.Signals:
    """Parse KILL, SIGKILL, kill or 9; raises LocalError for anything else."""
    try:
        if name.isdigit():
            return signal.Signals(int(name))
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
    except (KeyError, ValueError):
        raise LocalError(f"--signal {name}: no such signal; TERM and KILL are the usual ones") from None


def _print_addresses(cluster: LocalCluster) -> None:
    description = cluster.layout.read_description()
    typer.echo(f"zookeeper  {description['zookeeper']}")
    typer.echo(f"bootstrap  {description['bootstrap']}")
    typer.echo(f"described  {cluster.layout.description}")
    client_file = description.get("command_config")
    if client_file is not None:
        typer.echo(f"the super user's client.properties, also for Kafka's tools: --command-config {client_file}")
        typer.echo("more users and their rights: logyard users add, logyard acls add")
        typer.echo(f"certificates and passwords are in {cluster.layout.directory}/security, for you alone")


def _stay(cluster: LocalCluster) -> None:
    """Wait for a signal, or until another command stops the cluster; report every process that ends by itself."""
    reported: set[str] = set()
    while True:
        entries = cluster.processes.entries()
        if not entries:
            return
        for name in [name for name, entry in entries.items() if not entry.alive and name not in reported]:
            reported.add(name)
            say(cluster.processes.failure(name))
        time.sleep(0.5)
