"""One partition of `__consumer_offsets` read from its start: the groups as they stood, offsets included.

The last record of a key wins and a null value deletes; what does not parse is noted and left out alone.
"""

from collections.abc import Callable

from logyard.broker.clock import Clock
from logyard.broker.coordinator import storage
from logyard.broker.coordinator.members import Group
from logyard.broker.coordinator.ports import KeyValue, OffsetsLog
from logyard.broker.errors import CorruptData


async def load(offsets_log: OffsetsLog, partition: int, clock: Clock, note: Callable[[str], None]) -> dict[str, Group]:
    """Return every group of the partition by its id."""
    records: dict[storage.OffsetKey | storage.GroupKey, bytes] = {}
    async for chunk in offsets_log.read(partition):
        for record in chunk:
            _replay(record, records, note)
    now_ms = clock.now_ms()
    found: dict[str, Group] = {}
    for key, value in records.items():
        if isinstance(key, storage.GroupKey):
            try:
                found[key.group_id] = storage.decode_group(key.group_id, value, now_ms)
            except CorruptData as error:
                note(str(error))
    for key, value in records.items():
        if isinstance(key, storage.OffsetKey):
            group = found.setdefault(key.group_id, Group(key.group_id, state_since_ms=now_ms))
            try:
                group.offsets[key.topic, key.partition] = storage.decode_offset(key, value)
            except CorruptData as error:
                note(str(error))
    return found


def _replay(
    record: KeyValue, records: dict[storage.OffsetKey | storage.GroupKey, bytes], note: Callable[[str], None]
) -> None:
    raw_key, value = record
    try:
        key = storage.decode_key(raw_key)
    except CorruptData as error:
        note(str(error))
        return
    if key is None:
        return
    if value is None:
        records.pop(key, None)
    else:
        records[key] = value
