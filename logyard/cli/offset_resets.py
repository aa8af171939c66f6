"""What `logyard groups reset-offsets` does with groups, wherever their offsets are kept."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import typer

from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.groups import groups as text
from logyard.admin.groups import requests, reset_scenarios
from logyard.admin.groups.groups import DEAD, EMPTY
from logyard.admin.groups.reset_scenarios import OffsetClient, Scenario
from logyard.broker.model import TopicPartition
from logyard.local.errors import LocalError


class ResettableGroups(OffsetClient, Protocol):
    """Groups of brokers, or those of the first consumers in ZooKeeper."""

    def state(self, name: str) -> str:
        """Return the group's state; only those that are empty or dead can be reset."""
        ...

    def committed(self, name: str) -> list[TopicPartition]:
        """Return the partitions for which the group has offsets."""
        ...

    def named(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions of topics, or those that `flights:0,1` names. Raises BadGroups."""
        ...

    def write(self, name: str, offsets: dict[TopicPartition, int]) -> None: ...


class GroupsOfBrokers:
    """Groups whose coordinator is a broker."""

    def __init__(self, sender: ClusterRequests) -> None:
        self._sender = sender
        self.offsets, self.group_offsets = sender.offsets, sender.group_offsets

    def state(self, name: str) -> str:
        return requests.describe(self._sender, name).state

    def committed(self, name: str) -> list[TopicPartition]:
        return sorted(self._sender.group_offsets(name))

    def named(self, topics: Sequence[str]) -> list[TopicPartition]:
        return reset_scenarios.named_partitions(self._sender, topics)

    def write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if offsets:
            self._sender.alter_group_offsets(name, offsets)


@dataclass(frozen=True, slots=True)
class Reset:
    """What is asked for: `topics` None is all for which a group has offsets; `one_group` as kafka-consumer-groups
    writes its CSV."""

    scenario: Scenario
    topics: Sequence[str] | None
    execute: bool
    export: bool
    one_group: bool

    def run(self, groups: ResettableGroups, names: Iterable[str]) -> None:
        """Print the new offsets, and write them with `execute`. Raises LocalError if a group has members."""
        prepared: dict[str, dict[TopicPartition, int]] = {}
        busy = []
        for name in names:
            state = groups.state(name)
            if state not in (EMPTY, DEAD):
                busy.append((name, state))
                continue
            partitions = groups.committed(name) if self.topics is None else groups.named(self.topics)
            prepared[name] = reset_scenarios.prepare(groups, name, partitions, self.scenario, _warn)
            if self.execute:
                groups.write(name, prepared[name])
        if self.export:
            typer.echo(reset_scenarios.write_csv(prepared, with_group=not self.one_group), nl=False)
        elif prepared:
            for line in text.reset_table(prepared):
                typer.echo(line)
        if busy:
            name, state = busy[0]
            raise LocalError(
                f"Assignments can only be reset if the group '{name}' is inactive, but the current state is {state}."
            )


def _warn(said: str) -> None:
    typer.echo(said, err=True)
