"""A sorted set of offsets, and its compact form on the wire."""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from sys import byteorder

from logyard.broker.errors import CorruptData

_PIECE = 1 << 16
_WIDTHS = (("B", 2**8), ("H", 2**16), ("I", 2**32), ("Q", 2**64))


class OffsetSet:
    """Ascending int64 offsets in one flat array (8 bytes each)."""

    __slots__ = ("values",)

    def __init__(self, values: "Iterable[int] | array[int]" = (), *, is_sorted: bool = False) -> None:
        """Take `values`; `is_sorted` promises that they are ascending without repeats (not checked)."""
        if isinstance(values, array) and is_sorted:
            self.values = values
        else:
            self.values = array("q", values if is_sorted else sorted(set(values)))

    def __contains__(self, offset: int) -> bool:
        at = bisect_left(self.values, offset)
        return at < len(self.values) and self.values[at] == offset

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and self.values == other.values

    __hash__ = None  # type: ignore[assignment]  # mutable array inside

    def between(self, first: int, last: int) -> "array[int]":
        """Return the offsets in [first, last]."""
        return self.values[bisect_left(self.values, first) : bisect_left(self.values, last + 1)]

    def without(self, gone: Iterable[int]) -> "OffsetSet":
        """Return the set without the offsets in `gone`, which is ascending."""
        return OffsetSet(_less(self.values, iter(gone)), is_sorted=True)

    def encode(self) -> bytes:
        """Return width letter, count, first offset and the zlib-packed gaps (little endian)."""
        if not self.values:
            return b"B" + bytes(16)
        widest = max((max(gaps) for gaps in self._gaps()), default=0)
        letter = next(w for w, limit in _WIDTHS if widest < limit)
        head = letter.encode() + len(self.values).to_bytes(8, "little") + self.values[0].to_bytes(8, "little")
        packer = zlib.compressobj(1)
        return b"".join([head, *(packer.compress(_little(array(letter, g))) for g in self._gaps()), packer.flush()])

    def _gaps(self) -> Iterator[list[int]]:
        """Yield the distances between neighbours in pieces: a list of millions would cost a gigabyte."""
        for start in range(0, len(self.values) - 1, _PIECE):
            piece = self.values[start : start + _PIECE + 1]
            yield [b - a for a, b in pairwise(piece)]

    @classmethod
    def decode(cls, data: bytes | memoryview, count_max: int | None = None) -> "OffsetSet":
        """Parse what `encode` wrote; raises CorruptData.

        That is raised for more than `count_max` offsets too: a megabyte may say that it has a thousand millions.
        """
        data = bytes(data)
        if len(data) < 17 or data[:1] not in (b"B", b"H", b"I", b"Q"):
            raise CorruptData("offset set: a width letter, a count and a first offset are expected")
        letter, count, first = data[:1].decode(), *(int.from_bytes(data[i : i + 8], "little") for i in (1, 9))
        if not count:
            return cls()
        if count_max is not None and count > count_max:
            raise CorruptData(f"offset set: {count} offsets, there can be {count_max}")
        gaps = array(letter)
        try:
            unpacker = zlib.decompressobj()
            # Up to one more than there are, so that its end is seen.
            gaps.frombytes(_little_bytes(letter, unpacker.decompress(data[17:], count * gaps.itemsize)))
        except (zlib.error, ValueError, OverflowError) as error:
            raise CorruptData(f"offset set: {error}") from error
        if not unpacker.eof or len(gaps) != count - 1:
            raise CorruptData(f"offset set: {count - 1} gaps are expected, {len(gaps)} found")
        values = array("q")
        try:
            values.append(first)
            for gap in gaps:
                first += gap
                values.append(first)
        except OverflowError as error:
            raise CorruptData(f"offset set: {error}") from error
        return cls(values, is_sorted=True)


def _less(values: Iterable[int], gone: Iterator[int]) -> Iterator[int]:
    next_gone = next(gone, None)
    for value in values:
        while next_gone is not None and next_gone < value:
            next_gone = next(gone, None)
        if value != next_gone:
            yield value


def _little(values: "array[int]") -> bytes:
    return _little_bytes(values.typecode, values.tobytes())


def _little_bytes(letter: str, data: bytes) -> bytes:
    """Convert between native and little-endian bytes; only a big-endian machine has to swap."""
    if byteorder == "little":
        return data
    swapped = array(letter)
    swapped.frombytes(data)
    swapped.byteswap()
    return swapped.tobytes()
