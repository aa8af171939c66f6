"""Encodes and decodes the records of `__consumer_offsets`, byte for byte as Kafka does (facts §16).

Keys of version 0 and 1 name an offset (group, topic, partition), those of version 2 a group. Values of offsets and of
groups have versions 0 to 3. We write version 3, and version 1 for an offset with an expiry time. A null value is a
tombstone.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logyard.broker.errors import CorruptData
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.groups.members import Group, GroupState, Member

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    group_id: str


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _bytes(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return struct.pack(">h", OFFSET_KEY_VERSION) + _string(group_id) + _string(topic) + struct.pack(">i", partition)


def group_key(group_id: str) -> bytes:
    return struct.pack(">h", GROUP_KEY_VERSION) + _string(group_id)


def offset_value(commit: OffsetCommit) -> bytes:
    if commit.expire_ms >= 0:
        head = struct.pack(">hq", 1, commit.offset)
        return head + _string(commit.metadata) + struct.pack(">qq", commit.commit_ms, commit.expire_ms)
    head = struct.pack(">hqi", 3, commit.offset, commit.leader_epoch)
    return head + _string(commit.metadata) + struct.pack(">q", commit.commit_ms)


def offset_records(
    group_id: str, commits: Iterable[OffsetCommit], bytes_max: int
) -> list[tuple[bytes, bytes | None]] | None:
    """Return the records of these commits; None as soon as they are longer than a batch may be.

    To find that out behind a batch of 80 MB, which a client may well ask for, took 0.3 s.
    """
    records: list[tuple[bytes, bytes | None]] = []
    for commit in commits:
        key, value = offset_key(group_id, commit.topic, commit.partition), offset_value(commit)
        bytes_max -= len(key) + len(value)
        if bytes_max < 0:
            return None
        records.append((key, value))
    return records


def group_bytes(group: Group, assignments: Mapping[str, bytes]) -> int:
    """Return how long `group_value` is at least; nothing is copied."""
    return sum(len(m.metadata(group.protocol)) + len(assignments.get(m.member_id, b"")) for m in group.members.values())


def group_value(group: Group, assignments: dict[str, bytes]) -> bytes:
    """Return the group's current state with these assignments (by member id) as a record's value."""
    head = struct.pack(">h", GROUP_VALUE_VERSION) + _string(group.protocol_type or "")
    head += struct.pack(">i", group.generation) + _string(group.protocol) + _string(group.leader_id)
    head += struct.pack(">qi", group.state_since_ms, len(group.members))
    return head + b"".join(
        _string(m.member_id)
        + _string(m.instance_id)
        + _string(m.client_id)
        + _string(m.client_host)
        + struct.pack(">ii", m.rebalance_timeout_ms, m.session_timeout_ms)
        + _bytes(m.metadata(group.protocol))
        + _bytes(assignments.get(m.member_id, b""))
        for m in group.members.values()
    )


class _Reader:
    """A cursor over one key or value. Raises CorruptData at its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self._data, self._at)
        except struct.error as error:
            raise CorruptData(f"__consumer_offsets record ends early, at byte {self._at}") from error
        self._at += struct.calcsize(form)
        return int(value)

    def string(self) -> str | None:
        size = self.unpack(">h")
        return None if size < 0 else self._take(size).decode("utf-8", "replace")

    def blob(self) -> bytes:
        return self._take(max(self.unpack(">i"), 0))

    def _take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise CorruptData(f"__consumer_offsets record ends early, at byte {self._at}")
        self._at += size
        return self._data[self._at - size : self._at]


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Decode a key; None if its version is unknown. Raises CorruptData."""
    reader = _Reader(data)
    version = reader.unpack(">h")
    if version in (0, 1):
        return OffsetKey(reader.string() or "", reader.string() or "", reader.unpack(">i"))
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string() or "")
    return None


def decode_offset(key: OffsetKey, data: bytes) -> OffsetCommit:
    """Decode an offset's value of version 0 to 3. Raises CorruptData."""
    reader = _Reader(data)
    version = reader.unpack(">h")
    if not 0 <= version <= 3:
        raise CorruptData(f"offset value version {version} of group {key.group_id}: 0 to 3 are known")
    offset = reader.unpack(">q")
    leader_epoch = reader.unpack(">i") if version == 3 else -1
    metadata = reader.string() or ""
    commit_ms = reader.unpack(">q")
    expire_ms = reader.unpack(">q") if version == 1 else -1
    return OffsetCommit(key.topic, key.partition, offset, leader_epoch, metadata, commit_ms, expire_ms)


def decode_group(group_id: str, data: bytes, wall_ms: int) -> Group:
    """Decode a group's value of version 0 to 3 into a Group that is Stable or Empty. Raises CorruptData.

    `wall_ms` is used if the value has no time for the state. The caller sets the members' deadlines.
    """
    reader = _Reader(data)
    version = reader.unpack(">h")
    if not 0 <= version <= 3:
        raise CorruptData(f"group value version {version} of group {group_id}: 0 to 3 are known")
    group = Group(group_id)
    protocol_type = reader.string() or ""
    group.generation = reader.unpack(">i")
    group.protocol = reader.string()
    leader_id = reader.string()
    since = reader.unpack(">q") if version >= 2 else -1
    group.state_since_ms = since if since >= 0 else wall_ms
    for _ in range(reader.unpack(">i")):
        group.add(_decode_member(reader, version, protocol_type, group.protocol or ""))
    group.protocol_type = protocol_type or None
    group.leader_id = leader_id if leader_id in group.members else group.leader_id
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    return group


def _decode_member(reader: _Reader, version: int, protocol_type: str, protocol: str) -> Member:
    member_id = reader.string() or ""
    instance_id = reader.string() if version >= 3 else None
    client_id, client_host = reader.string() or "", reader.string() or ""
    rebalance_timeout_ms = reader.unpack(">i") if version >= 1 else -1
    session_timeout_ms = reader.unpack(">i")
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = session_timeout_ms
    metadata, assignment = reader.blob(), reader.blob()
    return Member(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type,
        ((protocol, metadata),),
        assignment,
    )
