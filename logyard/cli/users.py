"""`logyard users`: users with SCRAM credentials. A password comes from a prompt, a file or the environment, never
from the command line, which other users of the machine can see."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from logyard.admin.configs import znodes as config_znodes
from logyard.admin.configs.entities import SCRAM, USERS, Entity
from logyard.admin.users import requests, users
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import ApiError, ErrorCode
from logyard.cli import command_config, options
from logyard.cli.options import Bootstrap, CommandConfig, RequiredBootstrap, ZkTlsConfig, ZooKeeper
from logyard.local.errors import LocalError

app = typer.Typer(
    help="Users that log in by SCRAM: add, delete, change passwords.", no_args_is_help=True, rich_markup_mode=None
)

VARIABLE = "LOGYARD_NEW_PASSWORD"

Name = Annotated[str, typer.Option("--user", help="The user's name.")]
Mechanisms = Annotated[
    str, typer.Option("--mechanism", help="SCRAM-SHA-256, SCRAM-SHA-512, or both with a comma between them.")
]
Iterations = Annotated[int, typer.Option("--iterations", help="Of the hash: 4096 to 16384.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help=f"Its first line is the password; - is standard input. Else {VARIABLE}."),
]


@app.command("list")
def list_(
    bootstrap_server: RequiredBootstrap,
    user: Annotated[list[str] | None, typer.Option("--user", help="Only this user; repeatable.")] = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Print users with their mechanisms.

    Example:

    \b
        logyard users list --bootstrap-server localhost:9092 --command-config admin.properties
    """
    with options.requests(bootstrap_server, command_config_file) as sender:
        for line in users.lines(requests.describe(sender, user or ())):
            typer.echo(line)


@app.command()
def add(
    user: Name,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    mechanism: Mechanisms = users.DEFAULT_MECHANISM,
    iterations: Iterations = 8192,
    password_file: PasswordFile = None,
    client_config: Annotated[
        Path | None,
        typer.Option("--client-config", help="Write this file, with which the user logs in: --command-config FILE."),
    ] = None,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Add a user that does not exist yet; with --zookeeper before the first broker starts.

    Example:

    \b
        logyard users add --bootstrap-server localhost:9092 --user alice --password-file alice.password
        logyard users add --bootstrap-server b:9093 --command-config admin.properties --user alice \\
            --password-file alice.password --client-config alice.properties
        logyard users add --zookeeper localhost:2181 --user broker --password-file broker.password
    """
    options.one_way(bootstrap_server, zookeeper, command_config_file)
    if client_config is not None and zookeeper is not None:
        raise LocalError("--client-config is for --bootstrap-server: leave it out with --zookeeper")
    wanted = _wanted(user, mechanism, iterations, password_file)
    if zookeeper is not None:
        _add_to_znodes(zookeeper, zk_tls_config, user, wanted)
        return
    properties = options.properties(command_config_file)
    own = command_config.of_user(properties, user, wanted[-1].mechanism, wanted[-1].password) if client_config else {}
    with options.requests_as(bootstrap_server or "", properties) as sender:
        if user in requests.describe(sender, [user]):
            raise LocalError(f"user {user} exists: use `logyard users change-password`")
        if client_config is not None:
            command_config.write(client_config, {**own, "bootstrap.servers": bootstrap_server or ""}, "--client-config")
        try:
            _alter(requests.alter(sender, wanted, {}), user)
        except BaseException:
            if client_config is not None:
                client_config.unlink()
            raise


@app.command("change-password")
def change_password(
    bootstrap_server: RequiredBootstrap,
    user: Name,
    mechanism: Annotated[
        str, typer.Option("--mechanism", help="Only of these mechanisms; else of all that the user has.")
    ] = "",
    iterations: Iterations = 8192,
    password_file: PasswordFile = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Give a user another password; connections that are open stay.

    Example:

    \b
        logyard users change-password --bootstrap-server localhost:9092 --user alice
    """
    with options.requests(bootstrap_server, command_config_file) as sender:
        has = requests.describe(sender, [user]).get(user)
        if has is None:
            raise LocalError(f"there is no user {user}: use `logyard users add`")
        chosen = mechanism or ",".join(sorted(has))
        _alter(requests.alter(sender, _wanted(user, chosen, iterations, password_file), {}), user)


@app.command()
def delete(
    bootstrap_server: RequiredBootstrap,
    user: Name,
    mechanism: Annotated[
        str, typer.Option("--mechanism", help="Only of these mechanisms; else of all that the user has.")
    ] = "",
    command_config_file: CommandConfig = None,
) -> None:
    """Remove a user's credentials. ACLs and quotas with the name stay.

    Example:

    \b
        logyard users delete --bootstrap-server localhost:9092 --user alice
    """
    with options.requests(bootstrap_server, command_config_file) as sender:
        has = requests.describe(sender, [user]).get(user)
        if has is None:
            raise LocalError(f"there is no user {user} with SCRAM credentials")
        chosen = users.mechanisms(mechanism) if mechanism else tuple(sorted(has))
        _alter(requests.alter(sender, [], {user: chosen}), user)


def _add_to_znodes(zookeeper: str, zk_tls_config: Path | None, user: str, wanted: list[NewPassword]) -> None:
    entity = Entity((USERS,), (user,))
    with options.ensemble(zookeeper, zk_tls_config, may_be_new=True) as znodes:
        ((_, known),) = config_znodes.describe(znodes, entity)
        if any(mechanism in SCRAM for mechanism in known):
            raise LocalError(f"user {user} exists: use `logyard users change-password`")
        values = {one.mechanism: f"iterations={one.iterations},password={one.password}" for one in wanted}
        config_znodes.alter(znodes, entity, values, ())
    typer.echo(users.updated(user))


def _wanted(user: str, mechanism: str, iterations: int, file: Path | None) -> list[NewPassword]:
    chosen = users.mechanisms(mechanism)
    NewPassword(user, chosen[0], "checked before it is asked for", iterations).check()
    password = _password(user, file)
    return [NewPassword(user, one, password, iterations).check() for one in chosen]


def _password(user: str, file: Path | None) -> str:
    """The password: of the file, else of the environment, else typed twice."""
    if file is not None:
        text = _standard_input() if str(file) == "-" else options.read_file("--password-file", file)
        return _given(text.split("\n", 1)[0].rstrip("\r"), f"--password-file {file}: its first line")
    if VARIABLE in os.environ:
        return _given(os.environ[VARIABLE], VARIABLE)
    if not sys.stdin.isatty():
        raise LocalError(f"no password: give --password-file FILE, or set {VARIABLE}")
    return str(typer.prompt(f"New password of {user}", hide_input=True, confirmation_prompt=True, err=True))


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise LocalError("--password-file -: no UTF-8 text") from None


def _given(password: str, where: str) -> str:
    if not password:
        raise LocalError(f"{where} is empty: the password is expected there")
    # In some locales, and in the environment, bytes that are no text come as halves of letters.
    if any("\ud800" <= letter <= "\udfff" for letter in password):
        raise LocalError(f"{where} is no UTF-8 text")
    return password


def _alter(results: dict[str, ApiError | None], user: str) -> None:
    problem = results.get(user)
    if problem is not None:
        if problem.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise LocalError(f"user {user} is not changed: this needs the right Alter on the cluster")
        raise problem
    typer.echo(users.updated(user))
