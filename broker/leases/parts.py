"""Parts, the replacement files of a compaction: received from a job, and checked before they are swapped in.

Everything here waits for the disk: call it in threads.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

from logyard.broker.compaction.old_formats import completed
from logyard.broker.errors import CorruptData
from logyard.broker.event_loop import RunBlocking
from logyard.broker.leases.book import LeaseError
from logyard.broker.leases.requests import Group
from logyard.broker.leases.snapshot import LeasedSegment
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.segment import scan
from logyard.broker.records.batch import crc_matches

PIECE_BYTES = 1 << 20
# Positions in an index are int32.
PART_BYTES_MAX = (1 << 31) - 1


def part_path(parts_directory: str, base_offset: int) -> str:
    return f"{parts_directory}/{base_offset:020d}.part"


def bytes_allowed(segments: Sequence[LeasedSegment]) -> int:
    """Return the largest size of a part for these segments: delete horizons and other compression make records
    longer."""
    return min(2 * sum(segment.size for segment in segments) + PIECE_BYTES, PART_BYTES_MAX)


def bad_part(base_offset: int, message: str) -> LeaseError:
    return LeaseError("bad_part", 422, f"part {base_offset}: {message}", base_offset=base_offset)


async def receive(
    run: RunBlocking,
    disk: Disk,
    path: str,
    size: int,
    chunks: AsyncIterator[bytes],
    alive: Callable[[], None],
    written: Callable[[int], None] = lambda _size: None,
) -> tuple[int, str]:
    """Write a stream to a new file, piece by piece, and sync it; returns (bytes, sha256 in hex).

    Stops after `size` bytes. `alive` is called before each piece is written, and may raise; `written` after it.
    """
    receiver = await run(lambda: _Receiver(disk, path))
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        if receiver.size + len(buffer) > size:
            break
        if len(buffer) >= PIECE_BYTES:
            alive()
            await run(partial(receiver.write, bytes(buffer)))
            written(len(buffer))
            buffer.clear()
    alive()
    await run(partial(receiver.finish, bytes(buffer)))
    return receiver.size, receiver.digest.hexdigest()


class _Receiver:
    def __init__(self, disk: Disk, path: str) -> None:
        self._file = disk.open(path, create=True, write=True)
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        self._file.write_at(piece, self.size)
        self.size += len(piece)
        self.digest.update(piece)

    def finish(self, piece: bytes) -> None:
        self.write(piece)
        self._file.sync()


def check_part(disk: Disk, path: str, group: Group, segments: Sequence[LeasedSegment]) -> None:
    """Check a part against the commit and against the segments that it replaces; raises LeaseError(bad_part)."""
    base = group.base_offset
    try:
        file = disk.open(path)
        size = file.size()
    except FileNotFoundError:
        raise bad_part(base, "it was not handed in") from None
    if size != group.size:
        raise bad_part(base, f"it has {size} bytes, the commit says {group.size}")
    if size > bytes_allowed(segments):
        raise bad_part(base, f"it has {size} bytes, {bytes_allowed(segments)} are allowed for what it replaces")
    if sha256_of(disk, path) != group.sha256:
        raise bad_part(base, "its sha256 is not what the commit says")
    last, records = _walk(base, scan.batches(file, 0, size))
    expected = segments[-1].last_offset
    if not last == expected == group.last_offset:
        raise bad_part(
            base,
            f"its last offset is {last}, the replaced segments end at {expected}, the commit says {group.last_offset}",
        )
    if records != group.records:
        raise bad_part(base, f"it has {records} records, the commit says {group.records}")


def _walk(base: int, batches: Iterator[scan.Scanned]) -> tuple[int, int]:
    """Check every batch; returns (last offset, records)."""
    last, records = base - 1, 0
    try:
        for position, header, data in batches:
            if not crc_matches(data, 0, header):
                raise bad_part(base, f"the CRC of the batch at {position} is wrong")
            header = completed(header, data)
            if header.base_offset <= last or header.last_offset_delta < 0:
                raise bad_part(base, f"offset {header.base_offset} at {position} follows {last}")
            if header.count < 0:
                raise bad_part(base, f"the batch at {position} says it has {header.count} records")
            last = header.last_offset
            records += header.count
    except CorruptData as error:
        raise bad_part(base, str(error)) from error
    return last, records


def sha256_of(disk: Disk, path: str) -> str:
    """Return the digest of a whole file, in lower-case hex."""
    file = disk.open(path)
    digest = hashlib.sha256()
    position = 0
    while piece := file.read_at(PIECE_BYTES, position):
        digest.update(piece)
        position += len(piece)
    return digest.hexdigest()


def first_changed(disk: Disk, directory: str, segments: Sequence[LeasedSegment]) -> int | None:
    """Return the base of the first segment whose log file is no longer the leased one, None if all are."""
    for segment in segments:
        try:
            status = disk.status(f"{directory}/{layout.file_name(segment.base_offset, layout.LOG)}")
        except FileNotFoundError:
            return segment.base_offset
        if (status.inode, status.size) != (segment.inode, segment.size):
            return segment.base_offset
    return None


def is_replaced(disk: Disk, directory: str, segment: LeasedSegment) -> bool:
    """Whether another log file lies in the place of the leased one, whatever became of that one's bytes."""
    try:
        return disk.status(f"{directory}/{layout.file_name(segment.base_offset, layout.LOG)}").inode != segment.inode
    except FileNotFoundError:
        return False
