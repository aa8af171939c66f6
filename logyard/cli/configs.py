"""`logyard configs`: the commands of kafka-configs.sh, by the brokers or by ZooKeeper."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.configs import entities, requests
from logyard.admin.configs import znodes as config_znodes
from logyard.admin.configs.entities import BROKER_LOGGERS, BROKERS, CLIENTS, IPS, SCRAM, TOPICS, USERS, Entity
from logyard.cli import command_config, options
from logyard.cli.options import Bootstrap, CommandConfig, ZkTlsConfig, ZooKeeper
from logyard.local.errors import LocalError

app = typer.Typer(
    help="Settings of topics, brokers, users, clients and ips.", no_args_is_help=True, rich_markup_mode=None
)

NEWS_S = 3.0
_NAMES = "names"


def _remember(context: typer.Context, given: Sequence[str] | bool | None) -> Sequence[str] | bool | None:
    """Keep names and defaults in the order of the command line, by which they are matched with types."""
    if given:
        names = [entities.DEFAULT] if isinstance(given, bool) else list(given)
        context.meta.setdefault(_NAMES, []).extend(names)
    return given


Types = Annotated[
    list[str] | None,
    typer.Option("--entity-type", help="topics, brokers, broker-loggers, users, clients, ips; users with clients."),
]
Names = Annotated[
    list[str] | None, typer.Option("--entity-name", callback=_remember, help="A name for each --entity-type.")
]
Default = Annotated[
    bool, typer.Option("--entity-default", callback=_remember, help="The defaults of the --entity-type.")
]
Topic = Annotated[str | None, typer.Option("--topic", help="A topic's name.")]
Broker = Annotated[str | None, typer.Option("--broker", help="A broker's id.")]
BrokerDefaults = Annotated[bool, typer.Option("--broker-defaults", help="The defaults of all brokers.")]
BrokerLogger = Annotated[str | None, typer.Option("--broker-logger", help="A broker's id, for its loggers.")]
User = Annotated[str | None, typer.Option("--user", help="A user's principal name.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="The defaults of all users.")]
Client = Annotated[str | None, typer.Option("--client", help="A client's id.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="The defaults of all clients.")]
Ip = Annotated[str | None, typer.Option("--ip", help="An address.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="The defaults of all addresses.")]


@app.command()
def describe(
    context: typer.Context,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    broker_logger: BrokerLogger = None,
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    entity_type: Types = None,
    entity_name: Names = None,
    entity_default: Default = False,
    everything: Annotated[bool, typer.Option("--all", help="Also show inherited, static and default values.")] = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Show settings; without a name, those of every entity of the type.

    Example:

    \b
        logyard configs describe --bootstrap-server localhost:9092 --topic flights --all
        logyard configs describe --bootstrap-server localhost:9092 --entity-type users --entity-type clients
    """
    flags = _flags(
        {TOPICS: topic, BROKERS: broker, BROKER_LOGGERS: broker_logger, USERS: user, CLIENTS: client, IPS: ip},
        {BROKERS: broker_defaults, USERS: user_defaults, CLIENTS: client_defaults, IPS: ip_defaults},
    )
    entity = _entity(flags, entity_type or [], context.meta.get(_NAMES, []), all_names=True)
    options.one_way(bootstrap_server, zookeeper, command_config_file)
    if zookeeper is not None:
        if everything:
            raise LocalError("--bootstrap-server must be specified for --all")
        with options.ensemble(zookeeper, zk_tls_config) as znodes:
            for one, values in config_znodes.describe(znodes, entity):
                typer.echo(entities.znode_line(one, values))
        return
    with options.requests(bootstrap_server or "", command_config_file) as sender:
        if entity.is_quota:
            for names, quota in requests.quotas(sender, entity):
                typer.echo(entities.quota_line(names, quota))
            if entity.types == (USERS,) and entity.name != entities.DEFAULT:
                for line in requests.credential_lines(sender, entity.names):
                    typer.echo(line)
            return
        _require_running(sender, entity)
        for one in [entity] if entity.names is not None else _all(sender, entity):
            typer.echo(entities.heading(one, everything=everything))
            for setting in requests.describe(sender, one, everything=everything):
                typer.echo(str(setting))


@app.command()
def alter(
    context: typer.Context,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    broker_logger: BrokerLogger = None,
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    entity_type: Types = None,
    entity_name: Names = None,
    entity_default: Default = False,
    add_config: Annotated[
        str | None, typer.Option("--add-config", help="k1=v1,k2=[v1,v2]; brackets keep commas together.")
    ] = None,
    add_config_file: Annotated[Path | None, typer.Option("--add-config-file", help="Properties to add.")] = None,
    delete_config: Annotated[str | None, typer.Option("--delete-config", help="Keys to remove: k1,k2.")] = None,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Set or remove settings of one entity.

    Example:

    \b
        logyard configs alter --bootstrap-server localhost:9092 --topic flights --add-config retention.ms=3600000
        logyard configs alter --bootstrap-server localhost:9092 --user alice \\
            --add-config 'SCRAM-SHA-512=[iterations=8192,password=secret]'
    """
    flags = _flags(
        {TOPICS: topic, BROKERS: broker, BROKER_LOGGERS: broker_logger, USERS: user, CLIENTS: client, IPS: ip},
        {BROKERS: broker_defaults, USERS: user_defaults, CLIENTS: client_defaults, IPS: ip_defaults},
    )
    entity = _entity(flags, entity_type or [], context.meta.get(_NAMES, []), all_names=False)
    add, delete = _changes(add_config, add_config_file, delete_config)
    options.one_way(bootstrap_server, zookeeper, command_config_file)
    if zookeeper is not None:
        # Users are made before the first broker starts.
        with options.ensemble(zookeeper, zk_tls_config, may_be_new=entity.type == USERS) as znodes:
            config_znodes.alter(znodes, entity, add, delete)
        typer.echo(f"Completed updating config for entity: {entities.spoken_entity(entity)}.")
        return
    with options.requests(bootstrap_server or "", command_config_file) as sender:
        if entity.is_quota:
            entities.check_client_settings(entity, [*add, *delete])
            if any(key in SCRAM for key in (*add, *delete)):
                requests.alter_credentials(sender, entity.name or "", add, delete)
            else:
                requests.alter_quotas(sender, entity, add, delete)
        else:
            _require_running(sender, entity)
            requests.alter(sender, entity, add, delete)
    typer.echo(entities.updated(entity))


def _flags(named: dict[str, str | None], defaults: dict[str, bool]) -> list[tuple[str, str]]:
    given = [(kind, name) for kind, name in named.items() if name is not None]
    return given + [(kind, entities.DEFAULT) for kind, wanted in defaults.items() if wanted]


def _entity(flags: list[tuple[str, str]], types: list[str], names: list[str], *, all_names: bool) -> Entity:
    if flags and (types or names):
        raise LocalError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if flags:
        return entities.make_entity([kind for kind, _ in flags], [name for _, name in flags], all_names=False)
    return entities.make_entity(types, names, all_names=all_names)


def _changes(add: str | None, file: Path | None, delete: str | None) -> tuple[dict[str, str], list[str]]:
    if add is not None and file is not None:
        raise LocalError("give either --add-config or --add-config-file")
    values = entities.parse_additions(add) if add is not None else {}
    if file is not None:
        values = entities.check_keys(command_config.read(file, "--add-config-file"))
    keys = [key.strip() for key in delete.split(",")] if delete else []
    if not values and not keys:
        raise LocalError("nothing to alter: give --add-config, --add-config-file or --delete-config")
    both = [key for key in keys if key in values]
    if both:
        raise LocalError(f"{', '.join(both)}: cannot be both set and removed")
    return values, keys


def _require_running(sender: ClusterRequests, entity: Entity) -> None:
    """Raise LocalError for a broker that no other knows: only it could answer, and would be tried for a minute."""
    if entity.type not in (BROKERS, BROKER_LOGGERS) or entity.name in (None, entities.DEFAULT):
        return
    # Who is asked hears of one that has just started from the controller.
    deadline = time.monotonic() + NEWS_S
    while int(entity.name or 0) not in (running := sorted(sender.snapshot([]).brokers)):
        if time.monotonic() < deadline:
            time.sleep(NEWS_S / 10)
            continue
        raise LocalError(
            f"broker {entity.name} does not run; running are {', '.join(map(str, running))}"
            + ("; give --zookeeper for settings of a broker that is down" if entity.type == BROKERS else "")
        )


def _all(sender: ClusterRequests, entity: Entity) -> list[Entity]:
    snapshot = sender.snapshot()
    if entity.type == TOPICS:
        return [Entity((TOPICS,), (name,)) for name in sorted(snapshot.topics)]
    ids = [str(broker) for broker in sorted(snapshot.brokers)]
    return [Entity(entity.types, (name,)) for name in ([*ids, ""] if entity.type == BROKERS else ids)]
