"""Topics as a document: the changes that give the cluster the topics that a file describes. Pure, except `apply`.

    version: 1
    cluster_id: 6oBvqmnQTumbd8qmRUcnVA      # refuse any other cluster (optional)
    owns: "orders\\\\..*"                      # the topics this file manages; others are ignored
    defaults: {partitions: 6, replication_factor: 3, configs: {min.insync.replicas: 2}}
    topics:
      orders.created: {}
      orders.current: {partitions: 12, configs: {cleanup.policy: compact}}

Who may do what with them is in the sections `acls`, `users` and `quotas` (access.py).

Guard rails (facts §36, numbers 1, 2, 12 to 15, 19): settings that are not named are left as they are; partitions
are never removed; topics that are owned and not listed are deleted only on request, never all of them, and only up to
a limit; what an approved plan does not name is not done.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, NewTopic
from logyard.admin.ports import ClusterClient
from logyard.admin.settings import BadSettings
from logyard.admin.topics.access import SECTIONS, Access
from logyard.admin.topics.changes import TopicChanges, apply_changes, plan_changes
from logyard.admin.topics.difference import difference_lines
from logyard.broker.errors import LogyardError

TOPICS_MAX = 10_000
_KEYS = ("version", "cluster_id", "owns", "defaults", "topics", *SECTIONS)
_TOPIC_KEYS = ("partitions", "replication_factor", "configs")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Smaller values of these delete records that are there now.
_SHRINKING = ("retention.ms", "retention.bytes")


class CatalogRefused(LogyardError):
    """The plan would do something that was not requested, or is no longer the approved one; the text says what."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The wanted topics. `owns`: a regular expression for whole names; every listed one has to match it."""

    topics: Mapping[str, NewTopic]
    owns: str | None = None
    cluster_id: str | None = None
    access: Access = field(default_factory=Access)

    @classmethod
    def read(cls, document: Any) -> "Catalog":
        """Parse a document. Raises BadSettings with the topic, the key and what is allowed."""
        content = _mapping("the file", document, _KEYS)
        if content.get("version") != 1:
            raise BadSettings(f"version {content.get('version')!r}: 1 is expected")
        owns = content.get("owns")
        try:
            pattern = re.compile(str(owns)) if owns is not None else None
        except re.error as problem:
            raise BadSettings(f"owns {owns!r}: a regular expression is expected ({problem})") from None
        defaults = _mapping("defaults", content.get("defaults"), _TOPIC_KEYS)
        listed = _mapping("topics", content.get("topics"))
        if len(listed) > TOPICS_MAX:
            raise BadSettings(f"topics: {len(listed)} are listed, {TOPICS_MAX} are allowed")
        topics = {str(name): _topic(str(name), entry, defaults) for name, entry in listed.items()}
        foreign = [name for name in topics if pattern is not None and not pattern.fullmatch(name)]
        if foreign:
            raise BadSettings(f"topic {foreign[0]}: it does not match owns {owns!r}")
        named = None if owns is None else str(owns)
        return cls(topics, named, content.get("cluster_id"), Access.read(content))


@dataclass(frozen=True, slots=True)
class CatalogPlan:
    """The changes. `unlisted`: owned topics that the file does not list and that stay; `ids`: those of the topics to
    delete, where brokers know ids."""

    cluster_id: str
    changes: tuple[TopicChanges, ...] = ()
    deletes: tuple[str, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    lines: tuple[str, ...] = field(default=())
    access: Access = field(default_factory=Access)

    @property
    def is_empty(self) -> bool:
        return not self.deletes and self.access.is_empty and all(changes.is_empty for changes in self.changes)

    def actions(self) -> set[str]:
        """Each of its changes as a text that can be compared with another plan's."""
        # With the id: another topic that has the name by then is not the one that was approved.
        found = {f"delete {name} {self.ids.get(name, '')}".rstrip() for name in self.deletes}
        for c in self.changes:
            if (new := c.create) is not None:
                settings = ",".join(f"{key}={value}" for key, value in sorted(new.configs.items()))
                found.add(f"create {c.topic} partitions {new.partitions} replicas {new.replication_factor} {settings}")
            if c.add_partitions_to is not None:
                found.add(f"{c.topic} partitions {c.add_partitions_to}")
            found |= {f"{c.topic} set {key}={value}" for key, value in c.set_configs.items()}
        return found | self.access.actions()

    def as_json(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "changes": [changes.as_json() for changes in self.changes],
            "deletes": list(self.deletes),
            "unlisted": list(self.unlisted),
            "warnings": list(self.warnings),
            "lines": [*self.lines, *self.access.lines()],
            "actions": sorted(self.actions()),
            "empty": self.is_empty,
        }


def read_configs(client: ClusterClient, topics: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
    """The settings of each of those topics."""
    return {topic: client.topic_configs(topic) for topic in topics}


def plan_catalog(
    catalog: Catalog,
    snapshot: ClusterSnapshot,
    configs: Mapping[str, Mapping[str, ConfigValue]],
    *,
    lacking: Access | None = None,
    delete_unlisted: bool = False,
    deletes_max: int = 5,
) -> CatalogPlan:
    """Compare the catalog with the cluster; `lacking` is what it lacks of the catalog's rights.

    Raises CatalogRefused if a guard rail forbids a change.
    """
    if catalog.cluster_id is not None and catalog.cluster_id != snapshot.cluster_id:
        raise CatalogRefused(f"the file is for cluster {catalog.cluster_id}, this is {snapshot.cluster_id}")
    changes, lines, warnings = [], list[str](), list[str]()
    for name, wanted in sorted(catalog.topics.items()):
        found = snapshot.topics.get(name)
        there = configs.get(name, {})
        change = plan_changes(wanted, found, there)
        if change.is_empty and not change.refused:
            continue
        changes.append(change)
        lines += [f"{name}: {line}" for line in difference_lines(change, found, there)]
        warnings += [f"{name}: {refused}" for refused in change.refused]
        warnings += _risks(name, change, there)
    unlisted = _unlisted(catalog, snapshot)
    deletes = unlisted if delete_unlisted else ()
    if delete_unlisted:
        _guard_deletes(catalog, unlisted, deletes_max)
        lines += [f"{name}: - the topic and all its records" for name in unlisted]
    return CatalogPlan(
        cluster_id=snapshot.cluster_id,
        changes=tuple(changes),
        deletes=deletes,
        ids={name: known for name in deletes if (known := snapshot.topics[name].topic_id) is not None},
        unlisted=() if delete_unlisted else unlisted,
        warnings=tuple(warnings),
        lines=tuple(lines),
        access=lacking or Access(),
    )


def _at_once(act: Callable[[], None]) -> None:
    act()


def apply(
    client: ClusterClient,
    plan: CatalogPlan,
    approved: Sequence[str],
    *,
    dry_run: bool = False,
    each: Callable[[Callable[[], None]], None] = _at_once,
) -> tuple[list[str], list[str]]:
    """Carry out a plan that was made a moment ago; returns (changed, deleted) topics.

    `each` carries out one topic's changes; it may repeat them where they raise NameNotFree.

    Raises CatalogRefused before anything is done if the plan contains a change that was not approved: the cluster or
    the file has changed since. Approved changes that are already done are fine.
    """
    surprising = sorted(plan.actions() - set(approved))
    if surprising:
        raise CatalogRefused(f"not approved: {'; '.join(surprising[:5])}: plan again")
    changed, deleted = [], []
    for changes in plan.changes:
        if not changes.is_empty:
            each(partial(apply_changes, client, changes, dry_run=dry_run))
            changed.append(changes.topic)
    for name in plan.deletes:
        if not dry_run:
            client.delete_topic(name, plan.ids.get(name))
        deleted.append(name)
    return changed, deleted


def _unlisted(catalog: Catalog, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    if catalog.owns is None:
        return ()
    owned = re.compile(catalog.owns)
    names = (name for name, topic in snapshot.topics.items() if not topic.internal and not name.startswith("__"))
    return tuple(sorted(name for name in names if name not in catalog.topics and owned.fullmatch(name)))


def _guard_deletes(catalog: Catalog, unlisted: Sequence[str], deletes_max: int) -> None:
    if catalog.owns is None:
        raise CatalogRefused("deleting topics that are not listed needs `owns`: which topics does the file manage?")
    if unlisted and not catalog.topics:
        raise CatalogRefused("the file lists no topic: that would delete everything it owns")
    if len(unlisted) > deletes_max:
        raise CatalogRefused(f"{len(unlisted)} topics would be deleted, {deletes_max} are allowed in one run")


def _risks(name: str, changes: TopicChanges, there: Mapping[str, ConfigValue]) -> list[str]:
    risks = []
    for key in _SHRINKING:
        before, after = _limit(there[key].value if key in there else None), _limit(changes.set_configs.get(key))
        if key in changes.set_configs and key in there and after < before:
            risks.append(f"{name}: {key} gets smaller: existing records will be deleted")
    policy = there.get("cleanup.policy")
    if changes.add_partitions_to is not None and policy and "compact" in (policy.value or ""):
        risks.append(f"{name}: it is compacted, so it has keys: keys will move to other partitions")
    wanted = changes.create
    if wanted is not None and 0 < wanted.replication_factor <= int(
        _limit(wanted.configs.get("min.insync.replicas", "0"))
    ):
        risks.append(
            f"{name}: min.insync.replicas is not below the replication factor: if one broker is down, writers stop"
        )
    return risks


def _limit(text: str | None) -> float:
    """A limit as a number; None and -1 mean no limit."""
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        number = -1.0
    return number if number >= 0 else float("inf")


def _topic(name: str, entry: Any, defaults: Mapping[str, Any]) -> NewTopic:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise BadSettings(f"topic {name!r}: letters, digits and . _ - are allowed, 249 at most")
    given = _mapping(f"topic {name}", entry, _TOPIC_KEYS)
    configs = {**_mapping("defaults.configs", defaults.get("configs")), **_mapping(name, given.get("configs"))}
    return NewTopic(
        name=name,
        partitions=_count(name, "partitions", given, defaults),
        replication_factor=_count(name, "replication_factor", given, defaults),
        configs={str(key): _text(value) for key, value in configs.items() if value is not None},
    )


def _count(name: str, key: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    value = given.get(key, defaults.get(key, -1))
    if isinstance(value, bool) or not isinstance(value, int) or value == 0 or value < -1:
        raise BadSettings(f"topic {name}: {key} {value!r}: a number above 0 is expected")
    return value


def _mapping(where: str, value: Any, allowed: Sequence[str] = ()) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadSettings(f"{where}: a mapping is expected, found {type(value).__name__}")
    strange = [str(key) for key in value if allowed and key not in allowed]
    if strange:
        raise BadSettings(f"{where}: {strange[0]!r} is not one of {', '.join(allowed)}")
    return dict(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)
