"""`logyard acls`: the commands of kafka-acls.sh."""

from collections.abc import Sequence
from typing import Annotated

import typer

from logyard.admin.acls import acls, requests
from logyard.admin.acls.acls import Acl, AclFilter, BadAcl, Grant, Resource
from logyard.cli import options
from logyard.cli.options import CommandConfig, RequiredBootstrap
from logyard.local.errors import LocalError

app = typer.Typer(help="Who may do what: ACLs.", no_args_is_help=True, rich_markup_mode=None)

Names = list[str] | None
Topic = Annotated[Names, typer.Option("--topic", help="A topic's name, or *; repeatable.")]
Group = Annotated[Names, typer.Option("--group", help="A consumer group's name, or *; repeatable.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Transactional = Annotated[Names, typer.Option("--transactional-id", help="A transactional id, or *; repeatable.")]
Token = Annotated[Names, typer.Option("--delegation-token", help="A delegation token's id; repeatable.")]
User = Annotated[Names, typer.Option("--user-principal", help="A user whose tokens are meant; repeatable.")]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        help="literal or prefixed; to list and remove also match (all that count for the name) and any.",
    ),
]
Allow = Annotated[Names, typer.Option("--allow-principal", help="User:NAME that may; repeatable.")]
Deny = Annotated[Names, typer.Option("--deny-principal", help="User:NAME that may not; repeatable.")]
AllowHost = Annotated[Names, typer.Option("--allow-host", help="Only from this address (any).")]
DenyHost = Annotated[Names, typer.Option("--deny-host", help="Not from this address (any).")]
Operation = Annotated[Names, typer.Option("--operation", help="Read, Write, Describe, All …; repeatable (All).")]
Producer = Annotated[bool, typer.Option("--producer", help="What a producer needs on its topics.")]
Consumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs on its topics and groups.")]
Idempotent = Annotated[bool, typer.Option("--idempotent", help="With --producer: of an idempotent one.")]


@app.command()
def add(
    bootstrap_server: RequiredBootstrap,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    transactional_id: Transactional = None,
    delegation_token: Token = None,
    user_principal: User = None,
    resource_pattern_type: Pattern = "literal",
    allow_principal: Allow = None,
    deny_principal: Deny = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    operation: Operation = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    command_config_file: CommandConfig = None,
) -> None:
    """Add ACLs; those that are there already stay.

    Example:

    \b
        logyard acls add --bootstrap-server localhost:9092 --allow-principal User:alice --operation Read --topic flights
        logyard acls add --bootstrap-server localhost:9092 --allow-principal User:loader --producer --topic flights
    """
    grant = _grant(allow_principal, deny_principal, allow_host, deny_host)
    if not grant.allow and not grant.deny:
        raise LocalError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    chosen = _chosen(topic, group, cluster, transactional_id, delegation_token, user_principal, resource_pattern_type)
    wanted = [acls.check(acl) for acl in _entries(grant, chosen, operation, producer, consumer, idempotent)]
    with options.requests(bootstrap_server, command_config_file) as sender:
        for resource, entries in acls.by_resource(wanted).items():
            typer.echo(acls.adding(resource, entries))
            requests.create(sender, entries)


@app.command()
def remove(
    bootstrap_server: RequiredBootstrap,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    transactional_id: Transactional = None,
    delegation_token: Token = None,
    user_principal: User = None,
    resource_pattern_type: Pattern = "literal",
    allow_principal: Allow = None,
    deny_principal: Deny = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    operation: Operation = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    force: Annotated[bool, typer.Option("--force", help="Do not ask.")] = False,
    command_config_file: CommandConfig = None,
) -> None:
    """Remove ACLs; without principals, all of the named topics, groups and so on.

    Example:

    \b
        logyard acls remove --bootstrap-server localhost:9092 --allow-principal User:alice --operation Read --topic t
        logyard acls remove --bootstrap-server localhost:9092 --topic flights --force
    """
    grant = _grant(allow_principal, deny_principal, allow_host, deny_host)
    chosen = _chosen(topic, group, cluster, transactional_id, delegation_token, user_principal, resource_pattern_type)
    by_resource = acls.by_resource(_entries(grant, chosen, operation, producer, consumer, idempotent))
    by_resource = {**{resource: [] for resource in chosen}, **by_resource}
    with options.requests(bootstrap_server, command_config_file) as sender:
        for resource, entries in by_resource.items():
            one = AclFilter(resource.type, resource.name, resource.pattern)
            if force or _confirmed(acls.question(one, entries)):
                requests.delete(sender, acls.removals(one, entries))


@app.command("list")
def list_(
    bootstrap_server: RequiredBootstrap,
    topic: Topic = None,
    group: Group = None,
    cluster: Cluster = False,
    transactional_id: Transactional = None,
    delegation_token: Token = None,
    user_principal: User = None,
    resource_pattern_type: Pattern = "literal",
    principal: Annotated[Names, typer.Option("--principal", help="Only of this User:NAME; repeatable.")] = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Print ACLs: all of them, or those of the named topics, groups and so on.

    Example:

    \b
        logyard acls list --bootstrap-server localhost:9092 --topic flights --resource-pattern-type match
        logyard acls list --bootstrap-server localhost:9092 --principal User:alice
    """
    named = _named(topic, group, cluster, transactional_id, delegation_token, user_principal)
    pattern = _pattern(resource_pattern_type, (acls.LITERAL, acls.PREFIXED, acls.MATCH, acls.ANY))
    chosen = [AclFilter(kind, name, pattern) for kind, name in named] or [AclFilter()]
    who = [acls.principal(one) for one in principal or ()]
    with options.requests(bootstrap_server, command_config_file) as sender:
        found = list(dict.fromkeys(acl for one in chosen for acl in requests.describe(sender, one)))
    if not who:
        _print(found)
    for one in who:
        typer.echo(f"ACLs for principal `{one}`")
        _print([acl for acl in found if acl.principal == one])


def _print(found: Sequence[Acl]) -> None:
    for resource, entries in acls.by_resource(found).items():
        typer.echo(acls.current(resource, entries))


def _confirmed(question: str) -> bool:
    typer.echo(question)
    answer: str = typer.prompt("", default="n", show_default=False, prompt_suffix="")
    return answer.strip().lower() == "y"


def _grant(allow: Names, deny: Names, allow_host: Names, deny_host: Names) -> Grant:
    return Grant(
        tuple(acls.principal(one) for one in allow or ()),
        tuple(acls.principal(one) for one in deny or ()),
        tuple(allow_host or ()),
        tuple(deny_host or ()),
    )


def _named(
    topic: Names, group: Names, cluster: bool, transactional_id: Names, token: Names, user: Names
) -> list[tuple[str, str]]:
    """(type, name) of everything that the options name."""
    given = {
        acls.TOPIC: topic,
        acls.GROUP: group,
        acls.CLUSTER: [acls.CLUSTER_NAME] if cluster else None,
        acls.TRANSACTIONAL_ID: transactional_id,
        acls.DELEGATION_TOKEN: token,
        acls.USER: user,
    }
    return [(kind, name.strip()) for kind, names in given.items() for name in names or ()]


def _chosen(
    topic: Names, group: Names, cluster: bool, transactional_id: Names, token: Names, user: Names, pattern: str
) -> list[Resource]:
    """The resources that the options name; the cluster is always literal. Raises LocalError for none."""
    chosen = _pattern(pattern, (acls.LITERAL, acls.PREFIXED, acls.MATCH, acls.ANY))
    named = _named(topic, group, cluster, transactional_id, token, user)
    if not named:
        raise LocalError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    return [Resource(kind, name, acls.LITERAL if kind == acls.CLUSTER else chosen) for kind, name in named]


def _pattern(text: str, allowed: Sequence[str]) -> str:
    if text.upper() not in allowed:
        raise BadAcl(f"--resource-pattern-type {text}: {', '.join(one.lower() for one in allowed)} is expected")
    return text.upper()


def _entries(
    grant: Grant, chosen: Sequence[Resource], operation: Names, producer: bool, consumer: bool, idempotent: bool
) -> list[Acl]:
    if not producer and not consumer:
        if idempotent:
            raise LocalError("The --idempotent option is only available if --producer is set")
        operations = list(dict.fromkeys(acls.operation(one) for one in operation or ("All",)))
        return [acl for resource in chosen for acl in grant.on(resource, operations)]
    if operation:
        raise _excluded(producer, "operation")
    if grant.deny:
        raise _excluded(producer, "deny-principal")
    found: list[Acl] = []
    if producer:
        found += acls.producer(grant, [one for one in chosen if one.type != acls.GROUP], idempotent=idempotent)
    if consumer:
        found += acls.consumer(grant, [one for one in chosen if one.type != acls.TRANSACTIONAL_ID])
    return list(dict.fromkeys(found))


def _excluded(producer: bool, option: str) -> LocalError:
    return LocalError(
        f"""Option "[{"producer" if producer else "consumer"}]" can't be used with option "[{option}]\""""
    )
