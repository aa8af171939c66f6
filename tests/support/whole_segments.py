"""Both passes of a compaction over whole segments in memory, by the product's rules: what other ways are held against.

`survey_segments` decides which records survive (with a dict of keys), `rewrite_group` writes what is left of segments
that become one. The Spark jobs and the broker's cleaner have to come to the same bytes.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.compaction.old_formats import completed
from logyard.broker.compaction.passes import Batch, rewrite_batches, survey_batches
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.records.header import iter_headers


class DictKeyMap:
    """The last offset of every key, by 128 bits of a key's digest."""

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}

    def put(self, key: bytes | memoryview, offset: int) -> None:
        self._last[blake2b(key, digest_size=16).digest()] = offset

    def drain(self) -> OffsetSet:
        last, self._last = self._last, {}
        return OffsetSet(last.values())


def batches_of(buffers: Iterable[memoryview]) -> Iterator[Batch]:
    """Yield the batches of whole segments."""
    for buffer in buffers:
        for position, header in iter_headers(buffer):
            batch = buffer[position : position + header.length]
            yield completed(header, batch), batch


def survey_segments(buffers: Iterable[memoryview], survey: Survey) -> Decision:
    """Run pass 1 over the leader's segments; raises CorruptData on a batch that does not parse."""
    return survey_batches(batches_of(buffers), survey, DictKeyMap())


def rewrite_group(buffers: Iterable[memoryview], decision: Decision, tally: Tally) -> Iterator[bytes | memoryview]:
    """Run pass 2 over the segments of one group; yields the batches of the one segment that replaces them."""
    return rewrite_batches(batches_of(buffers), decision, tally)
