"""What an operator may want to mend in a cluster, found in what is known of it; pure.

Each rule gives the findings of one kind, the worst first. `static/finding_kinds.js` says in words why each matters, and
which DAG mends it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, TopicView
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.counts import ClusterCounts
from logyard.plugins.logyard_ui.cluster.gathering import Gathered
from logyard.plugins.logyard_ui.cluster.sizes import Sizes
from logyard.plugins.logyard_ui.history.disk_forecast import DiskForecast

# A broker is skewed that has more than this times the mean, and at least so many leaders or bytes more than the mean.
SKEW, SKEW_LEADERS, SKEW_BYTES = 1.25, 3, 1 << 30
# A disk is nearly full of which so much is used, and soon full that will be within so many seconds.
DISK_SHARE, DISK_AHEAD_S = 0.9, 14 * 86_400
# A topic is skewed whose largest partition is this many times its mean partition, and at least so large.
PARTITION_SKEW, PARTITION_BYTES = 3.0, 1 << 30
# A partition with so many segments has many, where they are smaller than this.
SEGMENTS, SEGMENT_BYTES = 100, 64 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """A topic or a broker that something is found about. `number`: how bad it is; `values`: more numbers, by name."""

    number: float
    topic: str | None = None
    broker: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What the rules look at. None: not known, so rules that need it find nothing and say so.

    `disks`: what the kept history says of the brokers' disks.
    `readers`: the topics that some group reads; None unless every group was read.
    """

    snapshot: ClusterSnapshot
    counts: ClusterCounts
    moving: Mapping[TopicPartition, Assignment]
    gathered: Gathered | None = None
    sizes: Sizes | None = None
    readers: Collection[str] | None = None
    disks: Sequence[DiskForecast] = ()

    def topics(self) -> Iterable[TopicView]:
        """Those that are not the brokers' own."""
        return (topic for topic in self.snapshot.topics.values() if not topic.internal)

    def bytes(self, topic: str) -> int | None:
        """Of all replicas."""
        if self.sizes is None:
            return None
        views = self.snapshot.topics[topic].partitions
        held = (self.sizes.held.get(TopicPartition(topic, view.partition), {}) for view in views)
        return sum(replica.size for replicas in held for replica in replicas.values())

    def records(self, topic: str) -> int | None:
        """Offsets between start and end, over all partitions; None where one is not known."""
        found = self.gathered
        if found is None or found.starts is None or found.ends is None:
            return None
        tps = [TopicPartition(topic, view.partition) for view in self.snapshot.topics[topic].partitions]
        if not all(tp in found.starts and tp in found.ends for tp in tps):
            return None
        return sum(max(found.ends[tp] - found.starts[tp], 0) for tp in tps)


Rule = Callable[[Known], "list[Item] | None"]


def offline(known: Known) -> list[Item] | None:
    rows = ((row[0], row[4]) for row in known.counts.rows)
    return [Item(int(lost), str(name)) for name, lost in rows if lost]


def under_replicated(known: Known) -> list[Item] | None:
    found = []
    for name, topic in known.snapshot.topics.items():
        moves = ((v, known.moving.get(TopicPartition(name, v.partition))) for v in topic.partitions)
        behind = [(view, move.adding if move else ()) for view, move in moves if view.is_under_replicated(move)]
        if behind:
            # A replica that a move adds is on its way, not out of sync.
            out = sorted({one for view, adding in behind for one in set(view.replicas) - {*view.isr, *adding}})
            dead = [broker for broker in out if broker not in known.snapshot.brokers]
            found.append(Item(len(behind), name, values={"out_of_sync": out, "dead": dead}))
    return found


def replication_factor_1(known: Known) -> list[Item] | None:
    alone = (
        (name, [v for v in topic.partitions if len(v.replicas) == 1]) for name, topic in known.snapshot.topics.items()
    )
    return [Item(len(views), name, values={"partitions": len(views)}) for name, views in alone if views]


def min_insync(known: Known) -> list[Item] | None:
    """min.insync.replicas at or above the replication factor; with one replica the finding is another one."""
    settings = _settings(known)
    if settings is None:
        return None
    found = []
    for name, configs in settings.items():
        factor = min((len(view.replicas) for view in known.snapshot.topics[name].partitions), default=0)
        least = _integer(configs, "min.insync.replicas")
        if least is not None and least >= factor and max(least, factor) > 1:
            values = {"min_insync": least, "replication_factor": factor, "overrides": _overrides(configs)}
            found.append(Item(least - factor, name, values=values))
    return found


def idle(known: Known) -> list[Item] | None:
    days = None if known.gathered is None else known.gathered.idle_days
    if days is None:
        return None
    return [
        Item(count, name, values={"bytes": known.bytes(name), "records": known.records(name)})
        for name, count in days.items()
        if name in known.snapshot.topics
    ]


def unread(known: Known) -> list[Item] | None:
    """Topics that have records and no group; those who read without a group are not known to a cluster."""
    if known.readers is None:
        return None
    found = []
    for topic in known.topics():
        records = known.records(topic.name)
        if records and topic.name not in known.readers:
            found.append(Item(records, topic.name, values={"bytes": known.bytes(topic.name), "records": records}))
    return found


def leader_skew(known: Known) -> list[Item] | None:
    counts = known.counts.brokers
    alive = {broker: counts[broker].leaders for broker in known.snapshot.brokers if broker in counts}
    return _skewed(alive, SKEW_LEADERS, {"not_preferred": known.counts.totals.not_preferred})


def byte_skew(known: Known) -> list[Item] | None:
    if known.sizes is None:
        return None
    return _skewed({b: size for b, size in known.sizes.brokers.items() if b in known.snapshot.brokers}, SKEW_BYTES, {})


def disk_full(known: Known) -> list[Item] | None:
    """Directories that are nearly full, or will be soon: each stops on its own, so one a broker would hide others."""
    if known.sizes is None or not any(one.used is not None for one in known.sizes.directories):
        return None
    ahead = {(one.broker, one.path): one.full_in_s for one in known.disks}
    found = []
    for one in known.sizes.directories:
        if not one.total or one.used is None or not one.is_online:
            continue
        left = ahead.get((one.broker, one.path))
        if one.used < DISK_SHARE * one.total and (left is None or left > DISK_AHEAD_S):
            continue
        share = round(100 * one.used / one.total, 1)
        found.append(Item(share, broker=one.broker, values={"path": one.path, "free": one.usable, "full_in_s": left}))
    return found


def partition_skew(known: Known) -> list[Item] | None:
    """Topics of which one partition is much larger than the others, by the leaders' bytes."""
    if known.sizes is None:
        return None
    found = []
    for topic in known.topics():
        held = {
            v.partition: known.sizes.held.get(TopicPartition(topic.name, v.partition), {}) for v in topic.partitions
        }
        led = {v.partition: held[v.partition][v.leader].size for v in topic.partitions if v.leader in held[v.partition]}
        mean = sum(led.values()) / len(led) if led else 0.0
        largest = max(led, key=lambda number: led[number], default=-1)
        if largest >= 0 and led[largest] >= max(PARTITION_SKEW * mean, PARTITION_BYTES):
            values = {"partition": largest, "bytes": led[largest], "mean": round(mean)}
            found.append(Item(round(led[largest] / mean, 1), topic.name, values=values))
    return found


def small_segments(known: Known) -> list[Item] | None:
    """Topics with many small segments: as many as their bytes at least make, or as their time-outs make while they are
    written."""
    settings = _settings(known)
    if settings is None or known.sizes is None:
        return None
    days = (known.gathered.idle_days if known.gathered is not None else None) or {}
    found = []
    for name, configs in settings.items():
        topic = known.snapshot.topics[name]
        size, total = _integer(configs, "segment.bytes"), known.bytes(name) or 0
        replicas = sum(len(view.replicas) for view in topic.partitions)
        if not size or not replicas or topic.internal:
            continue
        by_bytes = total // size // replicas if size < SEGMENT_BYTES else 0
        by_time = 0 if name in days or not total else _segments_by_time(configs, total // replicas)
        count = max(by_bytes, by_time)
        if count >= SEGMENTS:
            values = {"replicas": replicas, "each": total // replicas // count, "by_time": by_time > by_bytes}
            found.append(Item(count, name, values=values | {"overrides": _overrides(configs)}))
    return found


def _segments_by_time(configs: Mapping[str, ConfigValue], each: int) -> int:
    """Segments of a partition that segment.ms closes before they are SEGMENT_BYTES large; 0 where it does not."""
    roll, kept = _integer(configs, "segment.ms"), _integer(configs, "retention.ms")
    policy = configs.get("cleanup.policy")
    if not roll or kept is None or kept <= 0 or policy is None or "delete" not in (policy.value or ""):
        return 0
    count = kept // roll
    return count if count and each // count < SEGMENT_BYTES else 0


def hanging(known: Known) -> list[Item] | None:
    if known.gathered is None or known.gathered.hanging is None:
        return None
    topics: dict[str, list[int]] = {}
    for one in known.gathered.hanging:
        topics.setdefault(one.tp.topic, []).append(one.producer.last_ms)
    return [Item(len(times), name, values={"since_ms": min(times)}) for name, times in topics.items()]


RULES: Mapping[str, Rule] = {
    "offline": offline,
    "under_replicated": under_replicated,
    "hanging": hanging,
    "disk_full": disk_full,
    "min_insync": min_insync,
    "replication_factor_1": replication_factor_1,
    "leader_skew": leader_skew,
    "byte_skew": byte_skew,
    "partition_skew": partition_skew,
    "small_segments": small_segments,
    "unread": unread,
    "idle": idle,
}


def find(known: Known) -> dict[str, list[Item] | None]:
    """Kind → what is found, the worst first; None where it is not known."""
    found: dict[str, list[Item] | None] = {}
    for kind, rule in RULES.items():
        items = rule(known)
        found[kind] = None if items is None else sorted(items, key=_order)
    return found


def readers(
    topics_of: Mapping[str, Sequence[str]], committed: Mapping[str, Iterable[TopicPartition]]
) -> frozenset[str] | None:
    """The topics that members of groups are assigned, or that groups have committed for.

    :param topics_of: group → the topics assigned to its members, for every group.
    :param committed: group → partitions that it has committed for; None is returned where a group is missing.
    """
    if not set(topics_of) <= set(committed):
        return None
    assigned = {topic for topics in topics_of.values() for topic in topics}
    return frozenset(assigned | {tp.topic for offsets in committed.values() for tp in offsets})


def _order(item: Item) -> tuple[float, str, int]:
    return -item.number, item.topic or "", -1 if item.broker is None else item.broker


def _skewed(held: Mapping[int, int], least: int, values: Mapping[str, Any]) -> list[Item]:
    mean = sum(held.values()) / len(held) if held else 0.0
    return [
        Item(count, broker=broker, values={"mean": round(mean, 1), **values})
        for broker, count in held.items()
        if count > mean * SKEW and count - mean >= least
    ]


def _settings(known: Known) -> dict[str, Mapping[str, ConfigValue]] | None:
    settings = None if known.gathered is None else known.gathered.settings
    return None if settings is None else {name: settings[name] for name in settings if name in known.snapshot.topics}


def _integer(configs: Mapping[str, ConfigValue], name: str) -> int | None:
    value = configs[name].value if name in configs else None
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def _overrides(configs: Mapping[str, ConfigValue]) -> dict[str, str]:
    """The settings of the topic itself, for the form that changes them."""
    return {
        name: entry.value
        for name, entry in sorted(configs.items())
        if entry.is_override and not entry.sensitive and entry.value is not None
    }
