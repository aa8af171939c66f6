"""The retention of topics: sizes, records, limits and expired records. Pure, except `read`.

A record is expired if it is older than `retention.ms` and still there. There are always some, because a log is deleted
by whole segments. Many of them mean that segments are too large for the retention, or that nothing deletes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, ReplicaSize
from logyard.admin.cluster.told_dirs import told_dirs
from logyard.admin.ports import EARLIEST, LATEST, ClusterClient, ClusterUnreachable
from logyard.admin.quantities import plural
from logyard.broker.model import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """One topic. Sizes are bytes, of one copy of each partition and of all replicas; None: no limit is set.

    What brokers did not tell is not in the numbers; `findings` says what that is.
    """

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
    """Read those topics (default: all but internal ones), the largest first; a finding says which do not exist.

    Where a broker does not answer, only what it has is missing. Raises ApiError, ClusterUnreachable where none does.
    """
    snapshot = client.snapshot(topics)
    names = [name for name, topic in snapshot.topics.items() if topics or not topic.internal]
    settings = client.topics_configs(names)
    names = [name for name in names if name in settings]  # the others were deleted meanwhile
    leaders = _Leaders(client, snapshot, names)
    first, last = leaders.offsets(names, EARLIEST), leaders.offsets(names, LATEST)
    if leaders.silent and not last:
        raise ClusterUnreachable(next(iter(leaders.silent.values())))
    limited: dict[int, list[str]] = {}
    for name in names:
        limit = _limit(settings[name], "retention.ms")
        if limit is not None and "delete" in policy_of(settings[name]):
            limited.setdefault(limit, []).append(name)
    in_time: dict[TopicPartition, int] = {}
    for age_ms, alike in limited.items():  # most topics have the default
        in_time |= leaders.offsets(alike, max(now_ms - age_ms, 0))
    sizes, unsized = read_sizes(client, snapshot, names, leaders.silent)
    found = []
    for name in names:
        mine = {tp: offset for tp, offset in in_time.items() if tp.topic == name}
        found.append(judge(name, snapshot, settings[name], sizes, first, last, mine, leaders.untold, unsized))
    for name in sorted(set(topics or ()) - set(snapshot.topics)):
        finding = "it does not exist" if name in snapshot.missing else "no broker tells whether it exists"
        found.append(TopicRetention(name, "none", None, None, 0, 0, 0, 0, 0, (finding,)))
    return sorted(found, key=lambda entry: (-entry.bytes_all, entry.topic))


class _Leaders:
    """The leaders of some topics. Those without an answer are not asked again: `silent` has why, and `untold` for each
    partition."""

    def __init__(self, client: ClusterClient, snapshot: ClusterSnapshot, topics: Sequence[str]) -> None:
        self._client = client
        self._leaders: dict[str, dict[TopicPartition, int]] = {name: {} for name in topics}
        self.silent: dict[int, str] = {}
        self.untold: dict[TopicPartition, str] = {}
        for tp, view in snapshot.partitions(topics):
            if view.leader in snapshot.brokers:
                self._leaders[tp.topic][tp] = view.leader
            else:
                self.untold[tp] = "no leader"

    def offsets(self, topics: Iterable[str], timestamp: int) -> Mapping[TopicPartition, int]:
        """Each partition's offset for that timestamp, of all leaders that tell it."""
        leaders = {tp: leader for name in topics for tp, leader in self._leaders[name].items()}
        asked = {tp: leader for tp, leader in leaders.items() if leader not in self.silent}
        if not asked:
            return {}
        told = self._client.told_offsets(asked, timestamp)
        self.untold |= told.untold
        self.silent |= {asked[tp]: why for tp, why in told.untold.items() if asked[tp] in told.silent}
        return told.offsets


def read_sizes(
    client: ClusterClient, snapshot: ClusterSnapshot, topics: Sequence[str], silent: Mapping[int, str] = {}
) -> tuple[Sequence[ReplicaSize], Mapping[int, str]]:
    """What the brokers that have replicas of these topics hold, and why others' sizes are not known.

    :param silent: brokers that gave no answer, and why: they are not asked.
    Raises ClusterUnreachable, ApiError where no broker tells.
    """
    holders = sorted({broker for _, view in snapshot.partitions(topics) for broker in view.replicas})
    away = dict.fromkeys(set(holders) - set(snapshot.brokers), "it is away")
    told = told_dirs(client, holders, {**away, **silent})
    return told.dirs.replicas, told.untold


def judge(
    topic: str,
    snapshot: ClusterSnapshot,
    configs: Mapping[str, ConfigValue],
    sizes: Sequence[ReplicaSize],
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    in_time: Mapping[TopicPartition, int],
    untold: Mapping[TopicPartition, str] = {},
    unsized: Mapping[int, str] = {},
) -> TopicRetention:
    """Return one topic's figures; `in_time` is each partition's first offset that is not expired (-1: none).

    `untold`, `unsized`: the partitions whose offsets, and the brokers whose sizes, are not known, and why.
    """
    partitions = [tp for tp, _ in snapshot.partitions([topic])]
    mine = [entry for entry in sizes if entry.tp.topic == topic and not entry.is_future]
    largest: dict[TopicPartition, int] = {}
    for entry in mine:
        largest[entry.tp] = max(entry.size, largest.get(entry.tp, 0))
    records = sum(max(last[tp] - first[tp], 0) for tp in partitions if tp in last and tp in first)
    overdue = 0
    for tp, offset in in_time.items():
        if tp in first and tp in last:
            overdue += max((offset if offset >= 0 else last[tp]) - first[tp], 0)
    retention_ms, retention_bytes = _limit(configs, "retention.ms"), _limit(configs, "retention.bytes")
    policy = policy_of(configs) if configs else "unknown"
    findings = []
    if not configs:
        findings.append("how long its records are kept is not known: this login may not see its settings")
    elif not policy or ("delete" in policy and retention_ms is None and retention_bytes is None):
        findings.append("it has no limit: its records are kept for ever")
    if retention_bytes is not None and "delete" in policy:
        over = [tp for tp, size in largest.items() if size > 2 * retention_bytes]
        if over:
            findings.append(f"{len(over)} partitions hold more than twice retention.bytes")
    if records and overdue * 2 > records:
        findings.append(f"{overdue} of {records} records are older than retention.ms: are its segments too large?")
    unknown = [tp for tp in partitions if tp in untold]
    if unknown:
        findings.append(f"the records of {plural(len(unknown), 'partition')} are not known ({untold[unknown[0]]})")
    elif not records:
        findings.append("it is empty")
    holders = {broker for _, view in snapshot.partitions([topic]) for broker in view.replicas}
    findings += [f"its bytes on broker {b} are not known ({unsized[b]})" for b in sorted(holders & unsized.keys())]
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
    """The words of the policy; none where all is kept, "delete" where the broker does not report it."""
    value = configs["cleanup.policy"].value if "cleanup.policy" in configs else None
    return "delete" if value is None else value


def _limit(configs: Mapping[str, ConfigValue], key: str) -> int | None:
    """A limit; None if there is none (-1) or the broker does not report it."""
    text = configs[key].value if key in configs else None
    try:
        number = int(text) if text is not None else -1
    except ValueError:
        number = -1
    return number if number >= 0 else None
