"""The retention of topics: sizes, records, limits and expired records. Pure, except `read`.

A record is expired if it is older than `retention.ms` and still there. There are always some, because a log is deleted
by whole segments. Many of them mean that segments are too large for the retention, or that nothing deletes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, ReplicaSize
from logyard.admin.ports import EARLIEST, LATEST, ClusterClient
from logyard.broker.model import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """One topic. Sizes are bytes, of one copy of each partition and of all replicas; None: no limit is set."""

    topic: str
    policy: str
    retention_ms: int | None
    retention_bytes: int | None
    partitions: int
    bytes_once: int
    bytes_all: int
    records: int
    overdue: int
    findings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"findings": list(self.findings)}


def read(client: ClusterClient, topics: Sequence[str] | None, now_ms: int) -> list[TopicRetention]:
    """Read those topics (default: all but internal ones), the largest first. Raises ApiError, ClusterUnreachable."""
    snapshot = client.snapshot(topics)
    names = [name for name, topic in snapshot.topics.items() if topics or not topic.internal]
    settings = client.topics_configs(names)
    names = [name for name in names if name in settings]  # the others were deleted meanwhile
    led = [tp for tp, view in snapshot.partitions(names) if view.is_led]
    first, last = client.offsets(led, EARLIEST), client.offsets(led, LATEST)
    sizes = client.replica_sizes()
    found = []
    for name in names:
        configs = settings[name]
        mine = [tp for tp in led if tp.topic == name]
        limit = _limit(configs, "retention.ms")
        deletes = "delete" in policy_of(configs)
        overdue = client.offsets(mine, max(now_ms - limit, 0)) if limit is not None and deletes and mine else {}
        found.append(judge(name, snapshot, configs, sizes, first, last, overdue))
    return sorted(found, key=lambda entry: (-entry.bytes_all, entry.topic))


def judge(
    topic: str,
    snapshot: ClusterSnapshot,
    configs: Mapping[str, ConfigValue],
    sizes: Sequence[ReplicaSize],
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    in_time: Mapping[TopicPartition, int],
) -> TopicRetention:
    """Return one topic's figures; `in_time` is each partition's first offset that is not expired (-1: none)."""
    partitions = [tp for tp, _ in snapshot.partitions([topic])]
    mine = [entry for entry in sizes if entry.tp.topic == topic and not entry.is_future]
    largest: dict[TopicPartition, int] = {}
    for entry in mine:
        largest[entry.tp] = max(entry.size, largest.get(entry.tp, 0))
    records = sum(max(last[tp] - first[tp], 0) for tp in partitions if tp in last and tp in first)
    overdue = 0
    for tp, offset in in_time.items():
        until = offset if offset >= 0 else last[tp]
        overdue += max(until - first[tp], 0)
    retention_ms, retention_bytes = _limit(configs, "retention.ms"), _limit(configs, "retention.bytes")
    policy = policy_of(configs)
    findings = []
    if "delete" in policy and retention_ms is None and retention_bytes is None:
        findings.append("it has no limit: its records are kept for ever")
    if retention_bytes is not None and "delete" in policy:
        over = [tp for tp, size in largest.items() if size > 2 * retention_bytes]
        if over:
            findings.append(f"{len(over)} partitions hold more than twice retention.bytes")
    if records and overdue * 2 > records:
        findings.append(f"{overdue} of {records} records are older than retention.ms: are its segments too large?")
    if not records:
        findings.append("it is empty")
    return TopicRetention(
        topic=topic,
        policy=policy,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        partitions=len(partitions),
        bytes_once=sum(largest.values()),
        bytes_all=sum(entry.size for entry in mine),
        records=records,
        overdue=overdue,
        findings=tuple(findings),
    )


def compaction_candidates(
    snapshot: ClusterSnapshot,
    policies: Mapping[str, str],
    sizes: Sequence[ReplicaSize],
    *,
    limit: int,
    bytes_min: int = 0,
) -> list[str]:
    """Return the compacted topics that may need compaction, the largest first, at most `limit`.

    The job decides whether a partition is dirty enough, from its broker's answer to the lease request.
    """
    held: dict[str, int] = {}
    for entry in sizes:
        held[entry.tp.topic] = held.get(entry.tp.topic, 0) + entry.size
    chosen = [
        name
        for name, policy in policies.items()
        if "compact" in policy and name in snapshot.topics and held.get(name, 0) >= max(bytes_min, 1)
    ]
    return sorted(chosen, key=lambda name: (-held[name], name))[:limit]


def policy_of(configs: Mapping[str, ConfigValue]) -> str:
    return (configs["cleanup.policy"].value if "cleanup.policy" in configs else None) or "delete"


def _limit(configs: Mapping[str, ConfigValue], key: str) -> int | None:
    """A limit; None if there is none (-1) or the broker does not report it."""
    text = configs[key].value if key in configs else None
    try:
        number = int(text) if text is not None else -1
    except ValueError:
        number = -1
    return number if number >= 0 else None
