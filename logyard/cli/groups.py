"""`logyard groups`: the commands of kafka-consumer-groups.sh, for groups of brokers and for those in ZooKeeper."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.groups import groups as text
from logyard.admin.groups import requests, reset_scenarios
from logyard.admin.groups.groups import DEAD, Group
from logyard.admin.groups.reset_scenarios import Scenario
from logyard.cli import old_groups, options
from logyard.cli.offset_resets import GroupsOfBrokers, Reset
from logyard.cli.old_groups import Place
from logyard.cli.options import Bootstrap, CommandConfig, RequiredBootstrap, RequiredZooKeeper, ZkTlsConfig
from logyard.local.errors import LocalError

app = typer.Typer(help="Show and reset consumer groups.", no_args_is_help=True, rich_markup_mode=None)

Groups = Annotated[list[str] | None, typer.Option("--group", help="A group's name; repeatable.")]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every group.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic, or some partitions as flights:0,1; repeatable.")
]

ZooKeeper = Annotated[
    str | None,
    typer.Option("--zookeeper", help="host:port[/chroot]: the groups of the first consumers, which are kept there."),
]
# Where reset-offsets sets them.
AllTopics = Annotated[bool, typer.Option("--all-topics", help="All topics that the group has committed offsets for.")]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Reset to the first available record.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end.")]
ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="Reset to the committed offset, or to the end where there is none.")
]
ToOffset = Annotated[int | None, typer.Option("--to-offset", help="To this offset.")]
ShiftBy = Annotated[int | None, typer.Option("--shift-by", help="Shift by this many records; backwards if negative.")]
ToDatetime = Annotated[
    str | None,
    typer.Option("--to-datetime", help="Reset to the first record at or after this time: 2026-11-21T10:00:00.000."),
]
ByDuration = Annotated[
    str | None, typer.Option("--by-duration", help="Reset to the offset of this long ago: P1DT2H3M4S.")
]
FromFile = Annotated[
    Path | None, typer.Option("--from-file", help="Reset to the offsets in a file that --export wrote.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Reset the offsets; without this they are only shown.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the new offsets, the default.")]
Export = Annotated[bool, typer.Option("--export", help="Print CSV instead of a table.")]


@app.command("list")
def list_(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    state: Annotated[bool, typer.Option("--state", help="Show the states.")] = False,
    states: Annotated[str | None, typer.Option("--states", help="Only groups in these states: Stable,Empty,…")] = None,
    kind: Annotated[bool, typer.Option("--type", help="Show the types.")] = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Print the names of groups, one per line; with --states or --types, a table.

    Example:

    \b
        logyard groups list --bootstrap-server localhost:9092
        logyard groups list --bootstrap-server localhost:9092 --states Empty
        logyard groups list --zookeeper localhost:2181
    """
    wanted = text.parse_states(states) if states else []
    place = _place(bootstrap_server, zookeeper, command_config_file, zk_tls_config)
    if isinstance(place, Place):
        _print(old_groups.list_(place, wanted, with_state=state or bool(states), with_type=kind))
        return
    with options.requests(place, command_config_file) as sender:
        found = requests.list_groups(sender, wanted)
    if state or states or kind:
        _print(text.listing_table(found, with_type=kind, with_state=state or bool(states)))
    else:
        _print(one.group for one in found)


@app.command()
def describe(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    group: Groups = None,
    all_groups: AllGroups = False,
    members: Annotated[bool, typer.Option("--members", help="Show members instead of offsets.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --members: show each member's partitions.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show coordinator and state instead of offsets.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show offsets, the default.")] = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Show the offsets, the members or the states of groups.

    Example:

    \b
        logyard groups describe --bootstrap-server localhost:9092 --group reports
        logyard groups describe --bootstrap-server localhost:9092 --all-groups --members --verbose
    """
    if sum((members, state, offsets)) > 1:
        raise LocalError("give only one of --members, --state, --offsets")
    place = _place(bootstrap_server, zookeeper, command_config_file, zk_tls_config)
    if isinstance(place, Place):
        old_groups.describe(place, _chosen(group, all_groups), members=members, verbose=verbose, state=state)
        return
    with options.requests(place, command_config_file) as sender:
        missing = []
        for name in _named(sender, group, all_groups):
            found = requests.describe(sender, name)
            if found.state == DEAD:
                missing.append(name)
                continue
            if found.notice is not None:
                typer.echo(f"\n{found.notice}", err=True)
            if members:
                _print(text.members_table(found, verbose=verbose))
            elif state:
                _print(text.states_table(found))
            else:
                _print(_offsets(sender, found))
    if missing:
        raise LocalError(f"Consumer group '{', '.join(missing)}' does not exist.")


@app.command("reset-offsets")
def reset_offsets(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    group: Groups = None,
    all_groups: AllGroups = False,
    topic: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    export: Export = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Set the committed offsets of groups without members; only shows them unless --execute is given.

    Example:

    \b
        logyard groups reset-offsets --bootstrap-server localhost:9092 --group reports --topic flights --to-earliest
        logyard groups reset-offsets --bootstrap-server localhost:9092 --group reports --all-topics \\
            --to-datetime 2026-11-21T00:00:00.000 --execute
    """
    _require_one_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    plan = (
        options.parse_file("--from-file", from_file, lambda text: reset_scenarios.parse_csv(text, group or []))
        if from_file
        else None
    )
    scenario = Scenario(to_earliest, to_latest, to_current, to_offset, shift_by, _time(to_datetime, by_duration), plan)
    if not (all_topics or topic or plan is not None):
        raise LocalError("One of the reset scopes should be defined: --all-topics, --topic.")
    if execute and dry_run:
        raise LocalError("give either --execute or --dry-run")
    place = _place(bootstrap_server, zookeeper, command_config_file, zk_tls_config)
    reset = Reset(scenario, None if all_topics else topic or [], execute, export, one_group=len(group or ()) == 1)
    if isinstance(place, Place):
        old_groups.reset_offsets(place, _chosen(group, all_groups), reset)
        return
    with options.requests(place, command_config_file) as sender:
        reset.run(GroupsOfBrokers(sender), _named(sender, group, all_groups))


@app.command()
def delete(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    group: Groups = None,
    all_groups: AllGroups = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Delete groups that have no members, with their committed offsets.

    Example:

    \b
        logyard groups delete --bootstrap-server localhost:9092 --group reports
    """
    place = _place(bootstrap_server, zookeeper, command_config_file, zk_tls_config)
    if isinstance(place, Place):
        old_groups.delete(place, _chosen(group, all_groups))
        return
    with options.requests(place, command_config_file) as sender:
        results = {name: requests.delete(sender, name) for name in _named(sender, group, all_groups)}
    failed = {name: problem for name, problem in results.items() if problem is not None}
    done = ", ".join(name for name in results if name not in failed)
    if failed:
        if done:
            typer.echo(f"These consumer groups were deleted successfully: '{done}'")
        reasons = "; ".join(
            f"Group '{name}' could not be deleted due to: {problem}" for name, problem in failed.items()
        )
        raise LocalError(f"Deletion of some consumer groups failed: {reasons}")
    typer.echo(f"Deletion of requested consumer groups ('{done}') was successful.")


@app.command("delete-offsets")
def delete_offsets(
    bootstrap_server: RequiredBootstrap,
    group: Annotated[str, typer.Option("--group", help="The group's name.")],
    topic: Annotated[list[str], typer.Option("--topic", help="A topic, or flights:0,1; repeatable.")],
    command_config_file: CommandConfig = None,
) -> None:
    """Delete a group's committed offsets of topics that it is not consuming now.

    Example:

    \b
        logyard groups delete-offsets --bootstrap-server localhost:9092 --group reports --topic flights
    """
    with options.requests(bootstrap_server, command_config_file) as sender:
        answers = requests.delete_offsets(sender, group, reset_scenarios.named_partitions(sender, topic))
    results = {tp: None if problem is None else str(problem) for tp, problem in answers.items()}
    failed = [tp for tp, problem in results.items() if problem is not None]
    if not failed:
        typer.echo(f"Request succeed for deleting offsets with topic {', '.join(topic)} group {group}")
    _print(text.deleted_offsets_table(results))
    if failed:
        raise LocalError("Encounter some partition level error, see the follow-up details above")


@app.command()
def migrate(
    zookeeper: RequiredZooKeeper,
    bootstrap_server: Bootstrap = None,
    group: Groups = None,
    all_groups: AllGroups = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the offsets; without this they are only shown.")
    ] = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Take the offsets that the first consumers keep in ZooKeeper over, so that today's consumers go on from there.

    A group's committed offset never goes back: a migration can be repeated. What is in ZooKeeper stays there.

    Example:

    \b
        logyard groups migrate --zookeeper localhost:2181 --group reports
        logyard groups migrate --zookeeper localhost:2181 --all-groups --execute
    """
    place = Place(zookeeper, bootstrap_server, command_config_file, zk_tls_config)
    old_groups.migrate(place, _chosen(group, all_groups), execute=execute)


def _require_one_target(**given: object) -> None:
    """Raise LocalError unless exactly one of these options is given."""
    targets = {f"--{name.replace('_', '-')}": value is not None and value is not False for name, value in given.items()}
    named = [option for option, is_given in targets.items() if is_given]
    if not named:
        raise LocalError(f"reset-offsets requires one of the following scenarios: {', '.join(targets)}")
    if len(named) > 1:
        raise LocalError(f"give only one of {', '.join(named)}")


def _place(
    bootstrap: str | None, zookeeper: str | None, config_file: Path | None, zk_tls_config: Path | None
) -> str | Place:
    """The brokers' addresses for groups of brokers, or the place of those in ZooKeeper. Raises LocalError."""
    if zookeeper is not None:
        return Place(zookeeper, bootstrap, config_file, zk_tls_config)
    if bootstrap is None:
        raise LocalError(
            "name the cluster: --bootstrap-server host:port, or --zookeeper host:port[/chroot] for the first consumers"
        )
    return bootstrap


def _chosen(names: list[str] | None, everything: bool) -> list[str] | None:
    """The groups that are named; None for all. Raises LocalError unless exactly one of the two is given."""
    if bool(names) == everything:
        raise LocalError("name the groups: --group NAME, or --all-groups")
    return None if everything else sorted(set(names or ()))


def _named(sender: ClusterRequests, names: list[str] | None, everything: bool) -> list[str]:
    chosen = _chosen(names, everything)
    return [one.group for one in requests.list_groups(sender)] if chosen is None else chosen


def _offsets(sender: ClusterRequests, group: Group) -> list[str]:
    committed = sender.group_offsets(group.name)
    partitions = sorted({*committed, *(tp for member in group.members for tp in member.partitions)})
    known = sender.snapshot(sorted({tp.topic for tp in partitions})) if partitions else None
    there = [tp for tp in partitions if known is not None and known.partition(tp) is not None]
    rows = text.offset_rows(group, committed, sender.offsets(there))
    return text.offsets_table(group.name, rows) if rows else []


def _time(to_datetime: str | None, by_duration: str | None) -> int | None:
    if to_datetime is not None:
        return reset_scenarios.parse_time(to_datetime)
    if by_duration is not None:
        return max(time.time_ns() // 1_000_000 - reset_scenarios.parse_duration(by_duration), 0)
    return None


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
