"""`logyard brokers`: which broker is controller, and what each broker leads, holds and lacks."""

import json
from collections.abc import Mapping
from pathlib import Path

import typer

from logyard.admin.cluster import brokers as report
from logyard.admin.cluster.told_dirs import ToldDirs, told_dirs
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.zookeeper.cluster_client import ZooKeeperClusterClient
from logyard.broker.errors import ApiError
from logyard.broker.model import BrokerInfo
from logyard.cli import options
from logyard.cli.options import Bootstrap, CommandConfig, Json, ZkTlsConfig, ZooKeeper
from logyard.local.errors import LocalError

MIN_ISR = "min.insync.replicas"


def brokers(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    as_json: Json = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Show the brokers: controller, epochs, racks, listeners, leaders, bytes, disks, and unhealthy partitions.

    Epochs and listeners need --zookeeper, bytes and disks --bootstrap-server; give both for everything.

    Example:

    \b
        logyard brokers --bootstrap-server localhost:9092
        logyard brokers --bootstrap-server localhost:9092 --zookeeper localhost:2181 --json
    """
    if bootstrap_server is None and zookeeper is None:
        raise LocalError("name the cluster: --bootstrap-server host:port, or --zookeeper host:port[/chroot], or both")
    if zookeeper is None:
        found = _by_brokers(bootstrap_server or "", command_config_file)
    else:
        with options.ensemble(zookeeper, zk_tls_config) as znodes:
            client = ZooKeeperClusterClient(znodes)
            registrations, epoch = client.registrations(), client.controller_epoch()
            if bootstrap_server is not None:
                found = _by_brokers(bootstrap_server, command_config_file, registrations, epoch)
            else:
                snapshot = client.snapshot()
                min_isrs = client.min_isrs(list(snapshot.topics))
                found = report.report(snapshot, min_isrs, registrations=registrations, controller_epoch=epoch)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        typer.echo("\n".join(report.text(found)))


def _by_brokers(
    bootstrap: str,
    config_file: Path | None,
    registrations: Mapping[int, BrokerInfo] | None = None,
    epoch: int | None = None,
) -> report.ClusterReport:
    with options.cluster(bootstrap, config_file) as client:
        snapshot = client.snapshot()
        settings = client.topics_configs(list(snapshot.topics))
        min_isrs = {topic: int(values[MIN_ISR].value or 1) for topic, values in settings.items() if MIN_ISR in values}
        told: ToldDirs | None = None
        try:
            told = told_dirs(client, sorted(snapshot.brokers))
            for broker, why in told.untold.items():
                typer.echo(f"the bytes of broker {broker} are unknown: {why}", err=True)
        except (ApiError, ClusterUnreachable) as problem:
            typer.echo(f"the bytes are unknown: {problem}", err=True)
        return report.report(
            snapshot,
            min_isrs,
            sizes=None if told is None else told.dirs.replicas,
            directories=() if told is None else told.dirs.directories,
            untold=() if told is None else told.untold,
            registrations=registrations,
            controller_epoch=epoch,
        )
