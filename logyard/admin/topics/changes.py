"""Brings topics to a wanted state: what differs, what may be changed, what is refused. Idempotent.

`plan_changes` is pure; `apply_changes` carries it out. It never reduces partitions, changes the replication factor
(that takes a reassignment) or touches settings that are not named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from logyard.admin.cluster.snapshot import ConfigValue, NewTopic, TopicView
from logyard.admin.ports import ClusterClient
from logyard.broker.errors import ApiError, ErrorCode, LogyardError


class IfExists(Enum):
    """What to do if the topic already exists."""

    FAIL = "fail"
    SKIP = "skip"
    RECONCILE = "reconcile"


class TopicConflict(LogyardError):
    """A topic exists and cannot be changed as asked; the text lists every difference."""


class NameNotFree(ApiError):
    """The controller has a topic of that name which its broker does not show: it is being deleted.

    Or it was created by somebody else this moment; either passes.
    """

    def __init__(self, topic: str) -> None:
        text = f"an earlier topic of the name {topic} is still being deleted; a broker with a replica may be away"
        super().__init__(ErrorCode.TOPIC_ALREADY_EXISTS, text)


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """The changes to one topic. `create` excludes the rest; `refused` lists what cannot be done."""

    topic: str
    create: NewTopic | None = None
    add_partitions_to: int | None = None
    set_configs: Mapping[str, str] = field(default_factory=dict)
    delete_configs: Sequence[str] = ()
    refused: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.add_partitions_to or self.set_configs or self.delete_configs)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "create": self.create is not None,
            "add_partitions_to": self.add_partitions_to,
            "set_configs": dict(self.set_configs),
            "delete_configs": list(self.delete_configs),
            "refused": list(self.refused),
        }


def plan_changes(wanted: NewTopic, found: TopicView | None, configs: Mapping[str, ConfigValue]) -> TopicChanges:
    """Compare a wanted topic with the existing one. Settings that `wanted` does not name stay as they are."""
    if found is None:
        return TopicChanges(wanted.name, create=wanted)
    refused: list[str] = []
    grow: int | None = None
    partitions = len(wanted.assignment) if wanted.assignment else wanted.partitions
    if partitions > len(found.partitions):
        grow = partitions
    elif 0 < partitions < len(found.partitions):
        refused.append(f"partitions: {len(found.partitions)} cannot become {partitions}: partitions cannot be removed")
    factor = wanted.replication_factor
    if factor > 0 and factor != found.replication_factor:
        refused.append(f"replication factor: {found.replication_factor} to {factor} needs a reassignment")
    for number, replicas in sorted((wanted.assignment or {}).items()):
        there = next((p for p in found.partitions if p.partition == number), None)
        if there is not None and tuple(replicas) != there.replicas:
            refused.append(
                f"partition {number}: replicas {list(there.replicas)} to {list(replicas)} need a reassignment"
            )
    return TopicChanges(
        topic=wanted.name,
        add_partitions_to=grow,
        set_configs=differing(wanted.configs, configs),
        refused=tuple(refused),
    )


def differing(wanted: Mapping[str, str], found: Mapping[str, ConfigValue]) -> dict[str, str]:
    """The settings whose value differs from the wanted one (blanks after commas in lists do not count)."""
    return {
        key: value
        for key, value in wanted.items()
        if key not in found or _plain(found[key].value) != _plain(value) or not found[key].is_override
    }


def _plain(value: str | None) -> str | None:
    return None if value is None else ",".join(part.strip() for part in value.split(","))


def ensure_topic(
    client: ClusterClient, wanted: NewTopic, if_exists: IfExists, *, dry_run: bool = False
) -> TopicChanges:
    """Create or change one topic; returns the changes (with `dry_run` not made).

    Raises TopicConflict, ApiError, of which NameNotFree passes by itself.
    """
    found = client.witnessed([wanted.name]).topics.get(wanted.name)
    if found is not None and if_exists is IfExists.FAIL:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {wanted.name} already exists")
    if found is not None and if_exists is IfExists.SKIP:
        return TopicChanges(wanted.name)
    changes = plan_changes(wanted, found, client.topic_configs(wanted.name) if found else {})
    if changes.refused:
        raise TopicConflict(f"topic {wanted.name}: " + "; ".join(changes.refused))
    apply_changes(client, changes, dry_run=dry_run)
    return changes


def apply_changes(client: ClusterClient, changes: TopicChanges, *, dry_run: bool = False) -> None:
    """Carry changes out in the order create, settings, partitions; with `dry_run` the broker only checks them."""
    if changes.create is not None:
        _create(client, changes.create, dry_run)
        return
    if changes.set_configs or changes.delete_configs:
        client.alter_topic_configs(
            changes.topic, changes.set_configs, tuple(changes.delete_configs), validate_only=dry_run
        )
    if changes.add_partitions_to is not None:
        ensure_partitions(client, changes.topic, changes.add_partitions_to, dry_run=dry_run)


def ensure_partitions(client: ClusterClient, topic: str, total: int, *, dry_run: bool = False) -> None:
    """Add partitions up to `total`, even if some were added meanwhile. Raises ApiError."""
    try:
        client.add_partitions(topic, total, validate_only=dry_run)
    except ApiError as refusal:
        if refusal.code is not ErrorCode.INVALID_PARTITIONS:
            raise
        # The broker that was asked may not know all partitions yet. If the controller were asked for one more, it would
        # add it.
        try:
            client.add_partitions(topic, total + 1, validate_only=True)
        except ApiError:
            raise refusal from None


def _create(client: ClusterClient, wanted: NewTopic, dry_run: bool) -> None:
    try:
        client.create_topic(wanted, validate_only=dry_run)
    except ApiError as refusal:
        if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        # It did not exist a moment ago: either an answer was lost and the request repeated, or somebody else created
        # it. If it is as wanted, either is fine.
        seen = client.witnessed([wanted.name])
        if wanted.name in seen.missing:
            raise NameNotFree(wanted.name) from None
        found = seen.topics.get(wanted.name)
        rest = plan_changes(wanted, found, client.topic_configs(wanted.name) if found else {})
        if found is None or rest.refused or not rest.is_empty:
            raise
