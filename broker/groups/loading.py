"""Reads one partition of `__consumer_offsets` from its start and rebuilds its groups and their offsets (facts §16).

The last record of a key wins, and a null value deletes. A record that cannot be parsed is noted and skipped. What a
transaction committed is kept apart until its marker: a commit marker makes it valid unless a later batch has the same
partition, an abort marker drops it.
"""

from collections.abc import Callable
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.groups import record_format
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import Written
from logyard.broker.groups.owned_groups import OpenGroups
from logyard.broker.groups.ports import OffsetsLog, StoredBatch


class Loaded(NamedTuple):
    """The groups of a partition by id, and which of them may have commits of open transactions."""

    groups: dict[str, Group]
    open: OpenGroups


async def load(offsets_log: OffsetsLog, partition: int, wall_ms: int, note: Callable[[str], None]) -> Loaded:
    """Return what the partition has. `note` gets a text for each bad record. Raises StorageError.

    Between the end of the log and the return nobody else has a turn: a marker that is written then would be missed. So
    all work is done where the log is read, in a thread.
    """
    replay = _Replay(partition, wall_ms, note)
    await offsets_log.read(partition, replay.take, note)
    return Loaded(replay.groups, replay.open)


class _Replay:
    """Groups as they stand after each batch: nothing that there are many of is left to be done at the end."""

    def __init__(self, partition: int, wall_ms: int, note: Callable[[str], None]) -> None:
        self._partition, self._wall_ms, self._note = partition, wall_ms, note
        self.groups: dict[str, Group] = {}
        self._recorded: set[str] = set()  # groups that have a record of their own
        self.open: OpenGroups = {}

    def take(self, batch: StoredBatch) -> None:
        if batch.commits is not None:
            self._end(batch.producer_id, batch.base_offset, committed=batch.commits)
            return
        for key, value in batch.records:
            try:
                self._record(batch, key, value)
            except CorruptData as error:
                self._note(str(error))

    def _record(self, batch: StoredBatch, raw_key: bytes, value: bytes | None) -> None:
        key = record_format.decode_key(raw_key)
        if isinstance(key, record_format.OffsetKey):
            if value is None:
                self._offset_is_gone(batch.producer_id, key)
            else:
                self._offset(batch, key, record_format.decode_offset(key, value))
        elif isinstance(key, record_format.GroupKey):
            if value is None:
                self._replace(key.group_id, self._bare(key.group_id))
                self._recorded.discard(key.group_id)
                self._drop_if_nothing(key.group_id)
            else:
                self._replace(key.group_id, record_format.decode_group(key.group_id, value, self._wall_ms))
                self._recorded.add(key.group_id)

    def _offset(self, batch: StoredBatch, key: record_format.OffsetKey, commit: OffsetCommit) -> None:
        group = self.groups.get(key.group_id)
        if group is None:
            group = self.groups[key.group_id] = self._bare(key.group_id)
        place = key.topic, key.partition
        if batch.producer_id is None:
            group.offsets.load(place, Written(batch.base_offset, commit))
        else:
            group.offsets.take_open(batch.producer_id, batch.base_offset, {place: commit})
            self.open.setdefault(batch.producer_id, {})[key.group_id] = None

    def _offset_is_gone(self, producer_id: int | None, key: record_format.OffsetKey) -> None:
        if key.group_id in self.groups:
            self.groups[key.group_id].offsets.unload((key.topic, key.partition), producer_id)
            self._drop_if_nothing(key.group_id)

    def _end(self, producer_id: int | None, marker_offset: int, *, committed: bool) -> None:
        if producer_id is None:
            return
        for group_id in self.open.pop(producer_id, ()):
            if group_id in self.groups:
                self.groups[group_id].offsets.end_transaction(producer_id, marker_offset, committed=committed)
                self._drop_if_nothing(group_id)

    def _replace(self, group_id: str, group: Group) -> None:
        before = self.groups.get(group_id)
        if before is not None:
            group.offsets = before.offsets
        group.partition = self._partition
        self.groups[group_id] = group

    def _drop_if_nothing(self, group_id: str) -> None:
        """A group of which nothing is left but its name is none."""
        if group_id not in self._recorded and self.groups[group_id].offsets.is_hollow:
            del self.groups[group_id]

    def _bare(self, group_id: str) -> Group:
        return Group(group_id, state_since_ms=self._wall_ms, partition=self._partition)
