"""Groups of the first consumers, with members and offsets in ZooKeeper below /consumers; brokers do not know them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from logyard.admin.groups.groups import EMPTY, STABLE, BadGroups, Group, Member
from logyard.admin.zookeeper.znodes import ZnodeClient, put
from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import consumers
from logyard.broker.znodes.consumers import IDS, OFFSETS, OWNERS, Registration
from logyard.broker.znodes.ops import Delete, ZkCode, Znode, refused

# The znodes of one transaction: with the longest names it stays below the size that a server accepts.
_DELETES = 1_000
_ACTIVE = "Its consumers are still active."


@dataclass(frozen=True, slots=True)
class OldGroup:
    """One group. `consumers`: registration by id, None if it cannot be read; `owners`: the consumer of each partition.

    `problems` names the znodes that cannot be parsed; the rest of the group is read all the same.
    """

    name: str
    consumers: Mapping[str, Registration | None] = field(default_factory=dict)
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        return bool(self.consumers)

    def as_group(self) -> Group:
        """The group in the terms of today's groups: registered consumers are its members."""
        read: dict[str, list[TopicPartition]] = {consumer: [] for consumer in self.consumers}
        for tp, consumer in self.owners.items():
            read.setdefault(consumer, []).append(tp)
        members = [Member(consumer, "-", "-", "", tuple(sorted(tps))) for consumer, tps in sorted(read.items())]
        return Group(self.name, STABLE if self.is_active else EMPTY, tuple(members), coordinator="ZooKeeper")


def names(znodes: ZnodeClient) -> list[str]:
    """Every group's name, in order."""
    return [name for name in znodes.children(consumers.PATH) or () if _is_group(name)]


def read(znodes: ZnodeClient, group: str) -> OldGroup | None:
    """Read one group; None if there is none of that name."""
    if not _is_group(group) or znodes.children(consumers.group_path(group)) is None:
        return None
    problems: list[str] = []
    offsets: dict[TopicPartition, int] = {}
    for tp, path, znode in _partitions(znodes, group, OFFSETS):
        try:
            offsets[tp] = consumers.decode_offset(znode.data, path)
        except CorruptData as problem:
            problems.append(str(problem))
    owners = {tp: consumers.decode_owner(znode.data) for tp, _, znode in _partitions(znodes, group, OWNERS)}
    return OldGroup(group, _registrations(znodes, group, problems), owners, offsets, tuple(problems))


def write_offsets(znodes: ZnodeClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Store offsets. Raises BadGroups if ZooKeeper refuses one."""
    for tp, offset in sorted(offsets.items()):
        path = consumers.partition_path(group, OFFSETS, tp)
        problem = put(znodes, path, consumers.encode_offset(offset))
        if problem is not None:
            raise BadGroups(f"ZooKeeper refused to write {path}: {problem.value}")


def delete(znodes: ZnodeClient, group: str) -> str | None:
    """Delete a group without consumers, with all its znodes; returns why it could not be deleted, or None."""
    found = _below(znodes, consumers.group_path(group)) if _is_group(group) else []
    if not found:
        return "The group does not exist."
    registrations = consumers.part_path(group, IDS)
    if any(path.startswith(f"{registrations}/") for path in found):
        return _ACTIVE
    # First the znode below which consumers register: if one has registered meanwhile, nothing is deleted.
    paths = sorted(found, key=lambda path: path != registrations)
    for start in range(0, len(paths), _DELETES):
        problem = refused(znodes.commit([Delete(path) for path in paths[start : start + _DELETES]]))
        if problem is ZkCode.NOT_EMPTY:
            return _ACTIVE
        if problem is not None:
            return f"It is being changed by somebody else ({problem.value}): try again."
    return None


def _is_group(name: str) -> bool:
    return "/" not in name and consumers.is_path(consumers.group_path(name))


def _registrations(znodes: ZnodeClient, group: str, problems: list[str]) -> dict[str, Registration | None]:
    ids = znodes.children(consumers.part_path(group, IDS)) or []
    paths = [consumers.consumer_path(group, consumer) for consumer in ids]
    found: dict[str, Registration | None] = {}
    for consumer, path, znode in zip(ids, paths, znodes.read(paths), strict=True):
        if znode is None:
            continue
        try:
            found[consumer] = consumers.decode_registration(znode.data, path)
        except CorruptData as problem:
            found[consumer] = None
            problems.append(str(problem))
    return found


def _partitions(znodes: ZnodeClient, group: str, part: str) -> Iterator[tuple[TopicPartition, str, Znode]]:
    """The znodes of partitions in OFFSETS or OWNERS; other znodes are skipped."""
    for topic in znodes.children(consumers.part_path(group, part)) or ():
        numbers = [n for n in znodes.children(consumers.topic_path(group, part, topic)) or () if _is_number(n)]
        places = [TopicPartition(topic, int(number)) for number in numbers]
        paths = [consumers.partition_path(group, part, tp) for tp in places]
        for tp, path, znode in zip(places, paths, znodes.read(paths), strict=True):
            if znode is not None:
                yield tp, path, znode


def _is_number(name: str) -> bool:
    """Whether it is a partition's number, as Kafka writes one: `07` is another znode."""
    return name.isascii() and name.isdecimal() and len(name) <= 10 and str(int(name)) == name


def _below(znodes: ZnodeClient, path: str) -> list[str]:
    """A znode and all below it, the deepest first; empty if it does not exist."""
    found: list[str] = []
    level: Sequence[str] = [path]
    while level:
        there = [(one, children) for one in level if (children := znodes.children(one)) is not None]
        found += [one for one, _ in there]
        level = [f"{one}/{child}" for one, children in there for child in children]
    return found[::-1]
