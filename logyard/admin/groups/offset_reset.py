"""Setting a group's offsets, by the rules of kafka-consumer-groups --reset-offsets.

The group must have no members; offsets outside a partition's log are moved to its nearest end; a time after the last
record means the end. The offsets to commit are computed first (`plan_reset`), so that they can be shown, kept and
repeated.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logyard.admin.cluster.presence import told
from logyard.admin.ports import EARLIEST, LATEST, ClusterClient
from logyard.admin.settings import BadSettings
from logyard.admin.times import parse_time_ms
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.model import TopicPartition


class GroupInUse(LogyardError):
    """The group has members, so only they may commit; the text says how many."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reset: `kind` is earliest, latest, current, offset, shift or time; `value` is an offset or milliseconds."""

    kind: str
    value: int = 0

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Parse `earliest`, `latest`, `current`, an offset (`42`), a shift (`+5`, `-5`), or a time in ISO 8601 (UTC if
        it has no zone). Raises BadSettings."""
        given = text.strip()
        if given in ("earliest", "latest", "current"):
            return cls(given)
        if re.fullmatch(r"[0-9]{1,19}", given):
            return cls("offset", int(given))
        if re.fullmatch(r"[+-][0-9]{1,19}", given):
            return cls("shift", int(given))
        try:
            return cls("time", parse_time_ms(given))
        except ValueError:
            raise BadSettings(
                f"to {text!r}: earliest, latest, current, an offset, +N, -N or a time in ISO 8601 is expected"
            ) from None


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One partition's committed offset: before (None: nothing was committed) and after."""

    tp: TopicPartition
    before: int | None
    after: int


def require_idle(client: ClusterClient, group: str) -> None:
    """Raise GroupInUse if the group has members; a group that does not exist is idle."""
    found = next((view for view in client.groups() if view.group_id == group), None)
    if found is not None and found.members:
        raise GroupInUse(f"group {group} has {found.members} members ({found.state}): stop them first")


def plan_reset(client: ClusterClient, group: str, topics: Sequence[str], target: Target) -> list[OffsetChange]:
    """Compute the offsets for those topics' partitions (without topics: all partitions with committed offsets).

    Raises ApiError if a topic does not exist, ClusterUnreachable where nobody can tell now, BadSettings if there is
    nothing to set or to start from.
    """
    committed = client.group_offsets(group)
    snapshot = told(client, sorted(set(topics) or {tp.topic for tp in committed}))
    absent = [topic for topic in topics if topic not in snapshot.topics]
    if absent:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {absent[0]} does not exist")
    there = [tp for tp, _ in snapshot.partitions()]
    wanted = [tp for tp in there if (tp.topic in topics if topics else tp in committed)]
    if not wanted:
        raise BadSettings(f"group {group} has committed no offsets: name the topics")
    return settle(client, wanted, committed, _wanted(client, wanted, committed, target))


def settle(
    client: ClusterClient,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    wanted: Mapping[TopicPartition, int],
) -> list[OffsetChange]:
    """Limit the wanted offsets to each partition's log, and leave out those that are already committed."""
    first, last = client.offsets(partitions, EARLIEST), client.offsets(partitions, LATEST)
    changes = []
    for tp in partitions:
        after = min(max(wanted[tp], first[tp]), last[tp])
        if committed.get(tp) != after:
            changes.append(OffsetChange(tp, committed.get(tp), after))
    return changes


def _wanted(
    client: ClusterClient,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Target,
) -> dict[TopicPartition, int]:
    match target.kind:
        case "earliest":
            return client.offsets(partitions, EARLIEST)
        case "latest":
            return client.offsets(partitions, LATEST)
        case "offset":
            return dict.fromkeys(partitions, target.value)
        case "time":
            last = client.offsets(partitions, LATEST)
            found = client.offsets(partitions, target.value)
            return {tp: found[tp] if found[tp] >= 0 else last[tp] for tp in partitions}
    without = [str(tp) for tp in partitions if tp not in committed]
    if without and target.kind == "shift":
        raise BadSettings(f"nothing is committed for {without[0]}, so there is nothing to shift")
    last = client.offsets(partitions, LATEST)
    # As in Kafka's tool: if nothing is committed, the current offset is the end.
    return {tp: committed.get(tp, last[tp]) + target.value for tp in partitions}
