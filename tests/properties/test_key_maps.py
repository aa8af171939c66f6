"""All maps of keys to last offsets, held by the same properties.

The survey's map over a dict (the plain rules of tests), the built-in cleaner's map of dirty keys, and the Spark job's
table, fed by one task or merged from several.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.compaction.dirty_keys import DirtyKeyMap, DirtyKeys
from logyard.broker.compaction.old_formats import completed
from logyard.broker.compiled.key_table import KeyTable
from logyard.broker.records.header import parse_header
from tests.support.batches import Rec, batch
from tests.support.lengths import examples
from tests.support.opened import open_trusted
from tests.support.whole_segments import DictKeyMap
from tests.unit.spark_jobs.segments.test_chunks import chunk_of

RECORDS_PER_BATCH = 7
Keys = Sequence[bytes | None]


def records_of(keys: Keys) -> list[Rec]:
    """One record a key, at ascending offsets with gaps; the value does not matter to a map of keys."""
    return [Rec(3 * i, key, b"v" if i % 3 else None) for i, key in enumerate(keys)]


def batches_of(keys: Keys) -> list[bytes]:
    records = records_of(keys)
    return [batch(records[i : i + RECORDS_PER_BATCH]).encode() for i in range(0, len(records), RECORDS_PER_BATCH)]


def by_dict(keys: Keys) -> list[int]:
    found = DictKeyMap()
    for record in records_of(keys):
        if record.key is not None:
            found.put(record.key, record.offset)
    return sorted(found.drain())


def by_dirty_keys(keys: Keys) -> list[int]:
    dirty = DirtyKeys(len(keys) + 1)
    encoded = batches_of(keys)
    batches = [(completed(parse_header(b), memoryview(b)), memoryview(b)) for b in encoded]
    end = 3 * len(keys)
    assert dirty.read(batches, 0, end, []) == end
    found = DirtyKeyMap(dirty)
    for record in records_of(keys):
        if record.key is not None:
            found.put(record.key, record.offset)
    return list(found.drain())


def fed(keys: Keys, table: KeyTable, first: int = 0, step: int = 1) -> KeyTable:
    """Feed every `step`-th batch from `first` on."""
    for encoded in batches_of(keys)[first::step]:
        chunk = open_trusted(chunk_of(encoded), "m")
        _, damaged, _ = table.feed(chunk.raw, chunk.payloads, chunk.headers, np.ones(len(chunk.headers), bool))
        assert damaged == -1
    return table


def by_table(keys: Keys) -> list[int]:
    return [int(offset) for offset in fed(keys, KeyTable()).drain()]


def by_merged_tables(keys: Keys) -> list[int]:
    seed = bytes(range(16))
    whole = KeyTable(seed)
    for first in (2, 0, 1):  # in whichever order parts come
        whole.merge(fed(keys, KeyTable(seed), first, 3).entries())
    return [int(offset) for offset in whole.drain()]


WAYS = (by_dict, by_dirty_keys, by_table, by_merged_tables)
few_keys = st.one_of(st.none(), st.binary(max_size=2), st.sampled_from([b"k" * 300, b"k" * 299 + b"l"]))


@pytest.mark.parametrize("last_offsets", WAYS)
@settings(max_examples=examples(60), deadline=None)
@given(keys=st.lists(few_keys, max_size=60))
def test_the_last_offset_of_each_key_and_nothing_else(last_offsets: Callable[[Keys], list[int]], keys: Keys) -> None:
    expected = {record.key: record.offset for record in records_of(keys) if record.key is not None}
    assert last_offsets(keys) == sorted(expected.values())


@pytest.mark.parametrize("last_offsets", WAYS)
def test_more_keys_than_a_new_map_has_room_for(last_offsets: Callable[[Keys], list[int]]) -> None:
    keys = [b"%d" % (i % 5000) for i in range(12_000)]
    assert last_offsets(keys) == [3 * i for i in range(7000, 12_000)]
