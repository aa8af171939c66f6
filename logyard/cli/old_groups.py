"""`logyard groups … --zookeeper` and `logyard groups migrate`: groups of the first consumers, kept in ZooKeeper.

Brokers do not know them, and are asked only for the ends of logs. Without --bootstrap-server their addresses come from
their registrations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from logyard.admin.cluster.presence import completed
from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.groups import groups as text
from logyard.admin.groups import migration, old_consumers, reset_scenarios
from logyard.admin.groups.groups import GroupListing
from logyard.admin.groups.old_consumers import OldGroup
from logyard.admin.zookeeper.batch import registrations
from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.broker.model import TopicPartition
from logyard.broker.znodes.paths import BROKER_IDS
from logyard.cli import options
from logyard.cli.offset_resets import Reset
from logyard.local.errors import LocalError


@dataclass(frozen=True, slots=True)
class Place:
    """Where the groups are, and how the brokers are reached."""

    zookeeper: str
    bootstrap: str | None = None
    config_file: Path | None = None
    zk_tls_config: Path | None = None

    @contextmanager
    def znodes(self) -> Iterator[ZnodeClient]:
        with options.ensemble(self.zookeeper, self.zk_tls_config) as znodes:
            yield znodes

    @contextmanager
    def open(self) -> Iterator[tuple[ZnodeClient, ClusterRequests]]:
        properties = options.properties(self.config_file)
        with self.znodes() as znodes:
            bootstrap = self.bootstrap or _addresses(znodes, properties)
            with options.requests_as(bootstrap, properties) as sender:
                yield znodes, sender


def list_(place: Place, states: Sequence[str], *, with_state: bool, with_type: bool) -> list[str]:
    """The names, or a table."""
    with place.znodes() as znodes:
        groups = old_consumers.names(znodes)
        if not (with_state or with_type):
            return groups
        found = [one for name in groups if (one := old_consumers.read(znodes, name)) is not None]
    listings = [GroupListing(one.name, "Old", one.as_group().state) for one in found]
    kept = [one for one in listings if not states or one.state in states]
    return text.listing_table(kept, with_type=with_type, with_state=with_state)


def describe(place: Place, names: Sequence[str] | None, *, members: bool, verbose: bool, state: bool) -> None:
    """Print the tables of groups (None: of all)."""
    with place.open() as (znodes, sender):
        for old in _groups(znodes, names):
            group = old.as_group()
            for said in (*([] if group.notice is None else [group.notice]), *old.problems):
                typer.echo(said, err=True)
            if members:
                lines = text.members_table(group, verbose=verbose)
            elif state:
                lines = text.states_table(group)
            else:
                partitions = sorted({*old.offsets, *old.owners})
                rows = text.offset_rows(group, old.offsets, sender.offsets(_existing(sender, partitions)))
                lines = text.offsets_table(group.name, rows) if rows else []
            _print(lines)


def reset_offsets(place: Place, names: Sequence[str] | None, reset: Reset) -> None:
    """Print new offsets, and write them if the reset says so."""
    with place.open() as (znodes, sender):
        groups = {old.name: old for old in _groups(znodes, names)}
        reset.run(_OldGroups(znodes, sender, groups), groups)


def delete(place: Place, names: Sequence[str] | None) -> None:
    """Delete groups with all they have in ZooKeeper."""
    with place.znodes() as znodes:
        wanted = old_consumers.names(znodes) if names is None else sorted(set(names))
        problems = {name: old_consumers.delete(znodes, name) for name in wanted}
    for name, problem in problems.items():
        if problem is None:
            typer.echo(f"Deleted all consumer group information for group '{name}' in zookeeper.")
    failed = [f"Group '{name}' could not be deleted due to: {p}" for name, p in problems.items() if p is not None]
    if failed:
        raise LocalError(f"Deletion of some consumer groups failed: {'; '.join(failed)}")


def migrate(place: Place, names: Sequence[str] | None, *, execute: bool) -> None:
    """Show what would be taken over into `__consumer_offsets`, and do it with `execute`."""
    with place.open() as (znodes, sender):
        groups = list(_groups(znodes, names))
        topics = sorted({tp.topic for old in groups for tp in old.offsets})
        known = {name: len(topic.partitions) for name, topic in _known(sender, topics).topics.items()}
        migrations, failed = [], []
        for old in groups:
            try:
                if execute and old.is_active:
                    raise LocalError(f"Group '{old.name}' still has old consumers: stop them first")
                found = migration.plan(sender, old, known)
                if execute and found.changes:
                    sender.alter_group_offsets(old.name, found.changes)
                migrations.append(found)
            except (text.BadGroups, LocalError) as problem:
                failed.append(str(problem))
            _print(f"Warning: {problem}" for problem in old.problems)
    if any(one.steps for one in migrations):
        _print(migration.table(migrations))
        typer.echo()
    for one in migrations:
        typer.echo(one.result(done=execute))
    if failed:
        raise LocalError("; ".join(failed))


class _OldGroups:
    """`ResettableGroups`: committed offsets are those in ZooKeeper."""

    def __init__(self, znodes: ZnodeClient, sender: ClusterRequests, groups: Mapping[str, OldGroup]) -> None:
        self._znodes, self._sender, self._known = znodes, sender, groups
        self.offsets = sender.offsets

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        return dict(self._known[group_id].offsets)

    def state(self, name: str) -> str:
        return self._known[name].as_group().state

    def committed(self, name: str) -> list[TopicPartition]:
        return _existing(self._sender, sorted(self._known[name].offsets))

    def named(self, topics: Sequence[str]) -> list[TopicPartition]:
        return reset_scenarios.named_partitions(self._sender, topics)

    def write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        old_consumers.write_offsets(self._znodes, name, offsets)


def _groups(znodes: ZnodeClient, names: Sequence[str] | None) -> Iterator[OldGroup]:
    for name in old_consumers.names(znodes) if names is None else sorted(set(names)):
        found = old_consumers.read(znodes, name)
        if found is not None:
            yield found
        elif names is not None:
            raise LocalError(f"The consumer group '{name}' does not exist.")


def _existing(sender: ClusterRequests, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    if not partitions:
        return []
    known = _known(sender, sorted({tp.topic for tp in partitions}))
    return [tp for tp in partitions if known.partition(tp) is not None]


def _known(sender: ClusterRequests, topics: Sequence[str]) -> ClusterSnapshot:
    """These topics as the controller's broker knows them too: another may not have heard of all their partitions."""
    return completed(sender, sender.snapshot(topics), topics) if topics else sender.snapshot([])


def _addresses(znodes: ZnodeClient, properties: Mapping[str, str]) -> str:
    """The registered addresses of the protocol in the properties (default: PLAINTEXT)."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    brokers = registrations(znodes.children(BROKER_IDS) or (), znodes.read)
    endpoints = [next((e for e in one.endpoints if e.protocol == protocol), None) for one in brokers.values()]
    found = [f"{one.host}:{one.port}" for one in endpoints if one is not None]
    if not found:
        raise LocalError(f"no broker is registered with an address for {protocol}: give --bootstrap-server too")
    return ",".join(found)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
