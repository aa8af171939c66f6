"""Reads one partition of `__consumer_offsets` from its start and rebuilds its groups and their offsets (facts §16).

The last record of a key wins, and a null value deletes. A record that cannot be parsed is noted and skipped. What a
transaction committed is kept apart until its marker: a commit marker makes it valid unless a later batch has the same
partition, an abort marker drops it.
"""

from collections.abc import Callable

from logyard.broker.errors import CorruptData
from logyard.broker.groups import record_format
from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import Written
from logyard.broker.groups.ports import OffsetsLog, StoredBatch


async def load(offsets_log: OffsetsLog, partition: int, wall_ms: int, note: Callable[[str], None]) -> dict[str, Group]:
    """Return the groups of the partition by id. `note` gets a text for each bad record. Raises StorageError."""
    replay = _Replay(wall_ms, note)
    await offsets_log.read(partition, replay.take, note)
    return replay.groups()


class _Replay:
    def __init__(self, wall_ms: int, note: Callable[[str], None]) -> None:
        self._wall_ms, self._note = wall_ms, note
        self._groups: dict[str, Group] = {}
        self._offsets: dict[record_format.OffsetKey, Written] = {}
        self._open: dict[int, dict[record_format.OffsetKey, Written]] = {}

    def take(self, batch: StoredBatch) -> None:
        if batch.commits is not None:
            self._end(batch.producer_id, committed=batch.commits)
            return
        into = self._offsets
        if batch.producer_id is not None:
            into = self._open.setdefault(batch.producer_id, {})
        for key, value in batch.records:
            try:
                self._record(batch.base_offset, key, value, into)
            except CorruptData as error:
                self._note(str(error))

    def _record(
        self, base: int, raw_key: bytes, value: bytes | None, into: dict[record_format.OffsetKey, Written]
    ) -> None:
        key = record_format.decode_key(raw_key)
        if isinstance(key, record_format.OffsetKey):
            if value is None:
                into.pop(key, None)
            else:
                into[key] = Written(base, record_format.decode_offset(key, value))
        elif isinstance(key, record_format.GroupKey):
            if value is None:
                self._groups.pop(key.group_id, None)
            else:
                self._groups[key.group_id] = record_format.decode_group(key.group_id, value, self._wall_ms)

    def _end(self, producer_id: int | None, *, committed: bool) -> None:
        ended = self._open.pop(producer_id, {}) if producer_id is not None else {}
        for key, read in ended.items() if committed else ():
            known = self._offsets.get(key)
            if known is None or known.base_offset < read.base_offset:
                self._offsets[key] = read

    def groups(self) -> dict[str, Group]:
        for key, written in self._offsets.items():
            self._group(key.group_id).offsets.load((key.topic, key.partition), written)
        for producer_id, pending in self._open.items():
            for key, (base, commit) in pending.items():
                self._group(key.group_id).offsets.take_open(producer_id, base, {(key.topic, key.partition): commit})
        return self._groups

    def _group(self, group_id: str) -> Group:
        return self._groups.setdefault(group_id, Group(group_id, state_since_ms=self._wall_ms))
