"""The scenarios of kafka-consumer-groups --reset-offsets: which offsets a group gets."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.admin.cluster.presence import TopicClient, told
from logyard.admin.groups.groups import BadGroups
from logyard.admin.ports import EARLIEST, LATEST, Say
from logyard.admin.times import parse_duration_ms, parse_time_ms
from logyard.broker.model import TopicPartition


class OffsetClient(Protocol):
    """The calls that are used."""

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: int = LATEST) -> dict[TopicPartition, int]: ...

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]: ...


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario: exactly one field is set. `timestamp`: ms; `plan`: group → partition → offset."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    timestamp: int | None = None
    plan: Mapping[str, Mapping[TopicPartition, int]] | None = None


def prepare(
    client: OffsetClient, group: str, partitions: Sequence[TopicPartition], scenario: Scenario, warn: Say
) -> dict[TopicPartition, int]:
    """The offsets to commit for these partitions (a plan brings its own). Raises BadGroups, ApiError."""
    if scenario.plan is not None:
        if group not in scenario.plan:
            raise BadGroups(f"No reset plan for group {group} found")
        return _within(client, scenario.plan[group], warn)
    if scenario.to_offset is not None:
        return _within(client, dict.fromkeys(partitions, scenario.to_offset), warn)
    if scenario.to_earliest:
        return client.offsets(partitions, EARLIEST)
    if scenario.to_latest:
        return client.offsets(partitions, LATEST)
    if scenario.timestamp is not None:
        return _at(client, partitions, scenario.timestamp, warn)
    committed = client.group_offsets(group)
    missing = [tp for tp in partitions if tp not in committed]
    if scenario.shift_by is not None:
        if missing:
            raise BadGroups(
                f"Cannot shift offset for partition {missing[0]} since there is no current committed offset"
            )
        return _within(client, {tp: committed[tp] + scenario.shift_by for tp in partitions}, warn)
    return {tp: committed[tp] for tp in partitions if tp in committed} | client.offsets(missing, LATEST)


def _at(
    client: OffsetClient, partitions: Sequence[TopicPartition], timestamp: int, warn: Say
) -> dict[TopicPartition, int]:
    found = client.offsets(partitions, timestamp)
    later = [tp for tp in partitions if found.get(tp, -1) < 0]
    for tp in later:
        warn(f"Warn: Partition {tp.partition} from topic {tp.topic} is empty. Falling back to latest known offset.")
    return {tp: found[tp] for tp in partitions if tp not in later} | client.offsets(later, LATEST)


def _within(client: OffsetClient, wanted: Mapping[TopicPartition, int], warn: Say) -> dict[TopicPartition, int]:
    """Limit offsets to the range of each partition's log."""
    partitions = list(wanted)
    first, last = client.offsets(partitions, EARLIEST), client.offsets(partitions, LATEST)
    found = {}
    for tp, offset in wanted.items():
        found[tp] = min(max(offset, first[tp]), last[tp])
        if found[tp] != offset:
            where = "higher than latest" if offset > last[tp] else "lower than earliest"
            warn(f"New offset ({offset}) is {where} offset for topic partition {tp}. Value will be set to {found[tp]}")
    return found


def named_partitions(client: TopicClient, names: Sequence[str]) -> list[TopicPartition]:
    """Apply `parse_topics` to the topics of a cluster.

    Raises BadGroups if a topic does not exist; ClusterUnreachable, ApiError where nobody can tell now.
    """
    known = told(client, sorted({name.partition(":")[0] for name in names})).topics if names else {}

    def count(topic: str) -> int:
        if topic not in known:
            raise BadGroups(f"Topic '{topic}' does not exist")
        return len(known[topic].partitions)

    return parse_topics(names, count)


def parse_topics(names: Iterable[str], count: Callable[[str], int]) -> list[TopicPartition]:
    """Parse `flights` (all partitions) and `flights:0,1`. `count` returns how many partitions a topic has. Raises
    BadGroups."""
    found: list[TopicPartition] = []
    for name in names:
        topic, colon, numbers = name.partition(":")
        if not colon:
            found += [TopicPartition(topic, number) for number in range(count(topic))]
            continue
        for number in numbers.split(","):
            if not number.isdecimal():
                raise BadGroups(f"Invalid partition '{number}' specified in topic arg '{name}'")
            found.append(TopicPartition(topic, int(number)))
    return list(dict.fromkeys(found))


def parse_time(text: str) -> int:
    """Parse `2026-11-21T10:00:00.000[Z|±hh[:]mm]`, UTC without a zone, into ms. Raises BadGroups."""
    try:
        return parse_time_ms(text)
    except ValueError:
        raise BadGroups(f"--to-datetime {text}: write it as 2026-11-21T10:00:00.000") from None


def parse_duration(text: str) -> int:
    """Parse `P1DT2H3M4.5S` into ms. Raises BadGroups."""
    try:
        return parse_duration_ms(text)
    except ValueError:
        raise BadGroups(f"--by-duration {text}: write it as P1DT2H3M4S") from None


def write_csv(offsets: Mapping[str, Mapping[TopicPartition, int]], *, with_group: bool) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for group, found in offsets.items():
        for tp, offset in sorted(found.items()):
            row = [tp.topic, tp.partition, offset]
            writer.writerow([group, *row] if with_group else row)
    return lines.getvalue()


def parse_csv(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Parse `group,topic,partition,offset` lines, or for a single group `topic,partition,offset`. Raises BadGroups."""
    found: dict[str, dict[TopicPartition, int]] = {}
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as problem:
        raise BadGroups(f"group,topic,partition,offset is expected ({problem})") from None
    for row in rows:
        full = [groups[0], *row] if len(row) == 3 and len(groups) == 1 else row
        try:
            group, topic, partition, offset = full
            found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise BadGroups(f"{','.join(row)!r}: group,topic,partition,offset is expected") from None
    return found
