"""A limit on open sealed segments: the least recently read ones are released."""

from collections import OrderedDict

from logyard.broker.log.segment.segment import Segment

FILES_MAX = 512
INDEX_BYTES_MAX = 128 << 20


class OpenSegments:
    """The sealed segments that have an open file or loaded indexes, shared by all logs of a broker."""

    def __init__(self, files_max: int = FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._files_max = files_max
        self._index_bytes_max = index_bytes_max
        self._index_bytes = 0
        self._segments: OrderedDict[int, tuple[Segment, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._segments)

    def touch(self, segment: Segment) -> None:
        """Note that a sealed segment is being read; the least recently read ones may be released for it."""
        self._drop_entry(segment)
        if segment.cache.is_mended:
            segment.settle_mended()
        size = segment.index_size
        self._segments[id(segment)] = (segment, size)
        self._index_bytes += size
        while len(self._segments) > 1 and (
            len(self._segments) > self._files_max or self._index_bytes > self._index_bytes_max
        ):
            _, (oldest, held) = self._segments.popitem(last=False)
            self._index_bytes -= held
            oldest.release()

    def forget(self, segment: Segment) -> None:
        """Stop counting a segment that became active again or was removed."""
        self._drop_entry(segment)

    def _drop_entry(self, segment: Segment) -> None:
        _, held = self._segments.pop(id(segment), (segment, 0))
        self._index_bytes -= held
