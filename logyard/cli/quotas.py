"""`logyard quotas`: limits of users, clients and addresses, as kafka-configs sets and prints them."""

from typing import Annotated

import typer

from logyard.admin.configs import entities, requests
from logyard.admin.configs.entities import CLIENTS, IPS, USERS, Entity
from logyard.admin.quotas import quotas
from logyard.cli import options
from logyard.cli.options import CommandConfig, RequiredBootstrap
from logyard.local.errors import LocalError

app = typer.Typer(
    help="Quotas: what users, clients and addresses may take.", no_args_is_help=True, rich_markup_mode=None
)

User = Annotated[str | None, typer.Option("--user", help='A user\'s name; "" for the default of users.')]
Client = Annotated[str | None, typer.Option("--client", help='A client id; "" for the default. With --user: both.')]
Ip = Annotated[str | None, typer.Option("--ip", help='An address; "" for the default.')]


@app.command("list")
def list_(
    bootstrap_server: RequiredBootstrap,
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Print all quotas, or those of one user, client, both, or address.

    Example:

    \b
        logyard quotas list --bootstrap-server localhost:9092
    """
    if user is None and client is None and ip is None:
        wanted = [Entity((USERS,)), Entity((USERS, CLIENTS)), Entity((CLIENTS,)), Entity((IPS,))]
    else:
        wanted = [quotas.entity_of(user, client, ip)]
    with options.requests(bootstrap_server, command_config_file) as sender:
        for entity in wanted:
            for names, values in requests.quotas(sender, entity):
                typer.echo(entities.quota_line(names, values))


@app.command("set")
def set_(
    bootstrap_server: RequiredBootstrap,
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    producer_byte_rate: Annotated[float | None, typer.Option("--producer-byte-rate", help="Bytes per second.")] = None,
    consumer_byte_rate: Annotated[float | None, typer.Option("--consumer-byte-rate", help="Bytes per second.")] = None,
    request_percentage: Annotated[
        float | None, typer.Option("--request-percentage", help="Percent of one thread's time.")
    ] = None,
    controller_mutation_rate: Annotated[
        float | None, typer.Option("--controller-mutation-rate", help="Partitions created and deleted per second.")
    ] = None,
    connection_creation_rate: Annotated[
        float | None, typer.Option("--connection-creation-rate", help="Connections per second; of --ip.")
    ] = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Set quotas; those that are not named stay.

    Example:

    \b
        logyard quotas set --bootstrap-server localhost:9092 --user alice --producer-byte-rate 1048576
    """
    entity = quotas.entity_of(user, client, ip)
    given = {
        "producer_byte_rate": producer_byte_rate,
        "consumer_byte_rate": consumer_byte_rate,
        "request_percentage": request_percentage,
        "controller_mutation_rate": controller_mutation_rate,
        "connection_creation_rate": connection_creation_rate,
    }
    values = quotas.check(entity, {key: value for key, value in given.items() if value is not None})
    if not values:
        raise LocalError("name a limit, such as --producer-byte-rate 1048576")
    with options.requests(bootstrap_server, command_config_file) as sender:
        requests.alter_quotas(sender, entity, {key: str(value) for key, value in values.items()}, ())
    typer.echo(entities.updated(entity))


@app.command()
def remove(
    bootstrap_server: RequiredBootstrap,
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="Only this one, producer_byte_rate …")] = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Remove quotas of one user, client, both, or address.

    Example:

    \b
        logyard quotas remove --bootstrap-server localhost:9092 --user alice
    """
    entity = quotas.entity_of(user, client, ip)
    with options.requests(bootstrap_server, command_config_file) as sender:
        there = sorted(one for _, values in requests.quotas(sender, entity) for one in values)
        if not there:
            raise LocalError(f"{quotas.spoken(entity)} has no quota")
        requests.alter_quotas(sender, entity, {}, key or there)
    typer.echo(entities.updated(entity))
