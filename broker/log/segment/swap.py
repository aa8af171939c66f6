"""Replacing closed segments by rewritten ones so that a crash at any point leaves either the old set or the new one.

Order (facts §46): parts become `.cleaned` files with their indexes, all synced; then, from the highest base down,
`.cleaned` → `.swap`, each group's log last. The last of these renames decides: before it, opening the directory drops
everything new; after it, opening completes the swap. Then old files → `.deleted`, and `.swap` → final from the lowest
base up.

Opening a directory (ours, like Kafka's) removes every segment between the lowest and the highest `.swap` of a swap. So
unchanged segments between two groups take part in the swap as hard links to themselves.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, remove_if_there
from logyard.broker.log.layout import CLEANED, DELETED, LOG, NEW, SEGMENT_KINDS, SWAP, SegmentFile
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.index import RELATIVE_OFFSET_MAX
from logyard.broker.log.segment.index_builder import BatchIndexer
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import crc_matches

Note = Callable[[str], None]


class BadPart(LogyardError):
    """A replacement that must not be swapped in; `base_offset` identifies its group."""

    def __init__(self, base_offset: int, message: str) -> None:
        super().__init__(f"part {base_offset}: {message}")
        self.base_offset = base_offset


@dataclass(frozen=True, slots=True)
class Replacement:
    """A new segment, ready under its `.cleaned` names, and the closed segments that it replaces."""

    new: Segment
    kinds: tuple[str, ...]
    old: tuple[Segment, ...]


def prepare(
    segments: Sequence[Segment], parts: Sequence[str], old_bases: Sequence[Sequence[int]], interval: int
) -> list[Replacement]:
    """Check the parts, build their indexes, and write everything as synced `.cleaned` files.

    `parts[i]`, the path of a whole log file, replaces the closed segments `old_bases[i]`: adjacent ones, the groups
    ascending. `segments` are the log's closed segments. Safe in a thread, because closed segments do not change. Raises
    BadPart and DiskError; all new files are removed then.
    """
    by_base = {segment.base_offset: number for number, segment in enumerate(segments)}
    groups: list[tuple[int, int]] = []
    for bases in old_bases:
        numbers = [by_base.get(base, -1) for base in bases]
        if not numbers or -1 in numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise BadPart(bases[0] if bases else -1, f"{list(bases)} are not adjacent closed segments")
        if groups and numbers[0] <= groups[-1][1]:
            raise BadPart(bases[0], "groups must ascend and not overlap")
        groups.append((numbers[0], numbers[-1]))
    replacements: list[Replacement] = []
    try:
        for number, (part, (first, last)) in enumerate(zip(parts, groups, strict=True)):
            if number:
                between = segments[groups[number - 1][1] + 1 : first]
                replacements += [_link_aside(segment) for segment in between]
            replacements.append(replacement_of(part, segments[first : last + 1], interval))
    except Exception:
        # One that stayed would undo a later swap at the next start (`finish`).
        for segment in segments:
            for kind in SEGMENT_KINDS:
                remove_if_there(segment.disk, segment.path(kind, CLEANED))
        raise
    if replacements:
        segments[0].disk.sync_directory(segments[0].directory)
    return replacements


def kinds_of(segment: Segment) -> tuple[str, ...]:
    """Return the kinds of files that a closed segment has."""
    return SEGMENT_KINDS if segment.has_aborted else layout.ALWAYS_THERE


def _link_aside(segment: Segment) -> Replacement:
    """Have an unchanged segment take part, by hard links to its files."""
    kinds = kinds_of(segment)
    for kind in kinds:
        remove_if_there(segment.disk, segment.path(kind, CLEANED))
        segment.disk.link(segment.path(kind), segment.path(kind, CLEANED))
    return Replacement(segment, kinds, (segment,))


def replacement_of(part: str, old: Sequence[Segment], interval: int) -> Replacement:
    """Turn a part into a segment with indexes, under `.cleaned` names."""
    first = old[0]
    disk = first.disk
    disk.rename(part, first.path(LOG, CLEANED))
    new = Segment(disk, first.directory, first.base_offset, created_ms=first.created_ms)
    new.file = disk.open(new.path(LOG, CLEANED), write=True)
    new.size = new.file.size()
    markers = _index_part(new, old[-1].reader().end_offset(), interval)
    aborted = [entry for segment in old for entry in segment.reader().aborted if entry.last_offset in markers]
    for file in new.write_indexes(CLEANED):
        file.sync()
    kinds = [*layout.ALWAYS_THERE]
    if aborted:
        new.replace_aborted(aborted, CLEANED)
        for file in new.unsynced:
            file.sync()
        new.unsynced.clear()
        kinds.append(layout.TXN_INDEX)
    # It keeps the age of the files it replaces: rules that use a file's age (old tombstones, records without a
    # timestamp) must not start over with every cleaning.
    disk.set_mtime(new.path(LOG, CLEANED), disk.status(old[-1].path(LOG)).mtime_ms)
    new.file.sync()
    new.release()
    return Replacement(new, tuple(kinds), tuple(old))


def _index_part(new: Segment, end_offset: int, interval: int) -> set[int]:
    """Index a part; returns the offsets of its control records. Raises BadPart if it is not a valid replacement."""
    base = new.base_offset
    indexer = BatchIndexer(new, interval)
    markers: set[int] = set()
    last = base - 1
    try:
        for position, header, data in scan.batches(new.log_file(), 0, new.size):
            if header.base_offset <= last or header.last_offset_delta < 0:
                raise BadPart(base, f"offset {header.base_offset} at {position} follows {last}")
            if header.last_offset - base > RELATIVE_OFFSET_MAX:
                raise BadPart(base, f"offset {header.last_offset} is too far from {base} for an index")
            if not crc_matches(data, 0, header):
                raise BadPart(base, f"the CRC of the batch at {position} is wrong")
            if header.is_control and header.count > 0:
                markers.add(header.last_offset)
            indexer.add(position, header)
            last = header.last_offset
    except CorruptData as error:
        raise BadPart(base, str(error)) from error
    if last != end_offset - 1:
        raise BadPart(base, f"its last offset is {last}, but {end_offset - 1} in the segments it replaces")
    indexer.close()
    return markers


def decide(replacements: Sequence[Replacement]) -> None:
    """Rename `.cleaned` to `.swap`, the highest base first, each log last: after this the swap is completed, even after
    a crash."""
    for replacement in reversed(replacements):
        for kind in sorted(replacement.kinds, key=lambda kind: kind == LOG):
            new = replacement.new
            new.disk.rename(new.path(kind, CLEANED), new.path(kind, SWAP))


def withdraw(replacements: Sequence[Replacement]) -> None:
    """Remove the files that `prepare` wrote; only before `decide`."""
    for replacement in replacements:
        for kind in replacement.kinds:
            remove_if_there(replacement.new.disk, replacement.new.path(kind, CLEANED))


def retire(segment: Segment, *, with_snapshot: bool) -> list[str]:
    """Rename a segment's files to `.deleted`, the log first; returns the new paths."""
    kinds = (*SEGMENT_KINDS, layout.SNAPSHOT) if with_snapshot else SEGMENT_KINDS
    retired = []
    for kind in kinds:
        try:
            segment.disk.rename(segment.path(kind), segment.path(kind, DELETED))
        except FileNotFoundError:
            continue
        retired.append(segment.path(kind, DELETED))
    return retired


def complete(replacements: Sequence[Replacement]) -> list[str]:
    """Put the new files in the place of the old ones; returns the paths of files to be removed later.

    The directory is not synced yet: until then a crash may leave the swap at any of its steps.
    """
    retired: list[str] = []
    for replacement in replacements:
        for segment in replacement.old:
            gone = segment.base_offset != replacement.new.base_offset
            retired += retire(segment, with_snapshot=gone)
    for replacement in replacements:
        for kind in replacement.kinds:
            replacement.new.disk.rename(replacement.new.path(kind, SWAP), replacement.new.path(kind))
    return retired


def finish(disk: Disk, directory: str, note: Note) -> None:
    """On opening a directory: remove leftovers, and complete a decided swap.

    The renames go from the lowest base up, so that another crash leaves a shorter swap, not a wrong one.
    """
    files = segment_files(disk, directory)
    undecided_from = min((found.offset for _, found in files if found.suffix == CLEANED), default=None)
    swaps: list[tuple[str, SegmentFile]] = []
    for path, found in files:
        if found.suffix == SWAP and (undecided_from is None or found.offset < undecided_from):
            swaps.append((path, found))
        elif found.suffix == SWAP:
            disk.remove(path)
    for path, found in files:
        # Last: while a `.cleaned` exists, an undecided `.swap` is recognised as one.
        if found.suffix in (DELETED, CLEANED, NEW):
            disk.remove(path)
    logs = [found.offset for _, found in swaps if found.kind == LOG]
    if logs:
        behind = _end_of_swap(disk, directory, max(logs))
        note(f"{directory}: finishing a swap of the segments from {min(logs)} to {behind}")
        for path, found in files:
            if not found.suffix and found.kind != layout.SNAPSHOT and min(logs) <= found.offset < behind:
                disk.remove(path)
    for path, _ in sorted(swaps, key=lambda swap: (swap[1].offset, swap[1].kind != LOG)):
        disk.rename(path, path.removesuffix(SWAP))
    if len(swaps) or undecided_from is not None:
        disk.sync_directory(directory)


def segment_files(disk: Disk, directory: str) -> list[tuple[str, SegmentFile]]:
    """Return the segment files of a partition's directory, ascending: (path, parsed name)."""
    parsed = ((e.name, layout.parse_file_name(e.name)) for e in disk.list(directory) if not e.is_directory)
    return [(f"{directory}/{name}", found) for name, found in parsed if found is not None]


def _end_of_swap(disk: Disk, directory: str, base_offset: int) -> int:
    file = disk.open(f"{directory}/{layout.file_name(base_offset, LOG, SWAP)}")
    end = base_offset + 1
    with suppress(CorruptData):
        for place in scan.places(file.read_at, 0, file.size()):
            end = place.last_offset + 1
    return end
