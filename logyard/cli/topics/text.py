"""The output and the arguments of `kafka-topics.sh` of Apache Kafka 3.9: patterns, assignments, tables with tabs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from logyard.broker.model import INTERNAL_TOPICS
from logyard.local.errors import LocalError

COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


class Report(Enum):
    """Which partitions `describe` shows."""

    ALL = "all"
    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"
    OVERRIDES = "overrides"  # only the line of each topic that has settings


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition as shown; `adding` and `removing` are None without a reassignment."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None

    @property
    def replication_factor(self) -> int:
        """The number of replicas; those that a reassignment adds count only once it is done."""
        return len(self.replicas) - len(self.adding or ())


@dataclass(frozen=True, slots=True)
class TopicLines:
    """One topic as shown. `configs` are the settings that differ from the defaults; only ZooKeeper knows `deleting`."""

    name: str
    partitions: Sequence[PartitionLine]
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: str | None = None
    min_isr: int = 1
    deleting: bool = False


def matching(pattern: str | None, names: Iterable[str], *, exclude_internal: bool = False) -> list[str]:
    """The names that a --topic means: a regular expression over the whole name, commas for "or"; None means all.

    Raises LocalError on an invalid pattern.
    """
    try:
        wanted = re.compile(".*" if pattern is None else pattern.replace(",", "|"))
    except (re.error, OverflowError, RecursionError) as error:
        raise LocalError(f"--topic {pattern}: invalid regular expression ({error})") from error
    return [
        name for name in sorted(names) if wanted.fullmatch(name) and not (exclude_internal and name in INTERNAL_TOPICS)
    ]


def parse_assignment(text: str) -> dict[int, tuple[int, ...]]:
    """Read `0:1,1:2`: colons separate the brokers of a partition, commas the partitions; the first broker leads.

    Raises LocalError naming the partition that is wrong.
    """
    found: dict[int, tuple[int, ...]] = {}
    for partition, brokers in enumerate(text.split(",")):
        try:
            found[partition] = tuple(int(broker) for broker in brokers.split(":"))
        except ValueError:
            raise LocalError(f"--replica-assignment: partition {partition} is {brokers!r}: write it as 0:1:2") from None
        if len(set(found[partition])) < len(found[partition]):
            raise LocalError(f"--replica-assignment: partition {partition} names a broker twice: {brokers}")
        if len(found[partition]) != len(found[0]):
            raise LocalError(f"--replica-assignment: partition {partition} has another number of replicas: {brokers}")
    return found


def describe(topics: Iterable[TopicLines], report: Report, live: Iterable[int]) -> list[str]:
    """The lines that describe these topics."""
    alive = frozenset(live)
    lines: list[str] = []
    for topic in topics:
        if report is Report.ALL or (report is Report.OVERRIDES and topic.configs):
            lines.append(_topic_line(topic))
        if report is not Report.OVERRIDES:
            lines += [_partition_line(topic, p) for p in topic.partitions if _is_shown(p, topic, report, alive)]
    return lines


def _is_shown(partition: PartitionLine, topic: TopicLines, report: Report, live: frozenset[int]) -> bool:
    match report:
        case Report.UNDER_REPLICATED:
            return partition.replication_factor > len(partition.isr)
        case Report.UNAVAILABLE:
            return partition.leader not in live
        case Report.UNDER_MIN_ISR:
            return partition.leader < 0 or len(partition.isr) < topic.min_isr
        case Report.AT_MIN_ISR:
            return len(partition.isr) == topic.min_isr
    return True


def _topic_line(topic: TopicLines) -> str:
    cells = [f"Topic: {topic.name}"]
    if topic.topic_id is not None:
        cells.append(f"TopicId: {topic.topic_id}")
    factor = topic.partitions[0].replication_factor if topic.partitions else 0
    configs = ",".join(f"{key}={value}" for key, value in topic.configs.items())
    cells += [f"PartitionCount: {len(topic.partitions)}", f"ReplicationFactor: {factor}", f"Configs: {configs}"]
    return "\t".join([*cells, *(["MarkedForDeletion: true"] if topic.deleting else [])])


def _partition_line(topic: TopicLines, partition: PartitionLine) -> str:
    cells = [
        "",
        f"Topic: {topic.name}",
        f"Partition: {partition.partition}",
        f"Leader: {partition.leader if partition.leader >= 0 else 'none'}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
    ]
    if partition.adding is not None and partition.removing is not None:
        cells += [f"Adding Replicas: {_ids(partition.adding)}", f"Removing Replicas: {_ids(partition.removing)}"]
    # Eligible leader replicas are KRaft's; with ZooKeeper-mode brokers 3.9's own tool prints exactly this.
    cells += ["Elr: N/A", "LastKnownElr: N/A"]
    return "\t".join([*cells, *(["MarkedForDeletion: true"] if topic.deleting else [])])


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
