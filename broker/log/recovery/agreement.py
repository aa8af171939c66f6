"""How far the copy that a move between log directories has begun has the very batches of its log.

While it is filled its log is not compacted. But the directory of a copy may fail, or be offline at a start, and the log
is compacted then, of its old tombstones too. The copy that comes back with its directory still has what these deleted,
and would be filled with the rest: values of deleted keys would be there again once it takes the log's place.
"""

from collections.abc import Iterator, Sequence

from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records import pauses
from logyard.broker.records.batch import BatchHeader


def agreed_end(log: Sequence[Segment], copy: Sequence[Segment], start: int, end: int) -> int:
    """Return where the copy, which reaches from `start` to `end`, has the first batch that its log does not have;
    `end` if there is none.

    The segments are readers. Waits for the disk, in a thread; only headers are read. Raises CorruptData, DiskError, and
    FileNotFoundError if retention has deleted a segment meanwhile.
    """
    theirs = _headers(log, start, end)
    for number, own in enumerate(_headers(copy, start, end)):
        if number % pauses.PARTS == 0:
            pauses.rest()
        if next(theirs, None) != own:
            return own.base_offset
    return end


def _headers(segments: Sequence[Segment], start: int, end: int) -> Iterator[BatchHeader]:
    for number, segment in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if behind <= start:
            continue
        for _, header in scan.headers(segment.read, 0, segment.size):
            if header.base_offset >= end:
                return
            if header.last_offset >= start:
                yield header
        segment.release()
