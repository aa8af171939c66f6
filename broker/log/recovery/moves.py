"""At the next start, moves between log directories that a crash interrupted are completed or undone.

A future log takes its log's place by two renames in two directories, maybe on two disks: `T-P.…-future` → `T-P` in the
new one, then `T-P` → `T-P.…-delete` in the old one. Kafka, killed between them, finds two `T-P` and does not start. So
the future log's directory is first marked, once everything that is durable in the log is durable there too. At the next
start:
- marked, still a future log, and there is a log: the renames were not done. The future log is filled further.
- marked, a log, and there is another log: the first rename was done. The unmarked log is removed.
- marked, still a future log, and there is no log: only the second rename was durable. The future log becomes the log.
The mark is removed once both renames are durable, when the directory is loaded as a log, or when there is a log beside
the future one. A copy without a log keeps it: the log may be in a directory that is offline, and not there when that
is back.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from logyard.broker.log import layout
from logyard.broker.log.directory import DirectoryContents, LogDirectory
from logyard.broker.log.disk.port import Disk, DiskError, remove_if_there, stage
from logyard.broker.log.layout import DirectoryKind
from logyard.broker.model import TopicPartition

Place = tuple[LogDirectory, DirectoryContents, str]


def mark(disk: Disk, directory: str) -> None:
    """Record durably that this future log may take the place of its log. Waits for the disk."""
    stage(disk, f"{directory}/{layout.MOVED}", b"")
    disk.sync_directory(directory)


def unmark(disk: Disk, directories: Sequence[str], left: str, moved: str) -> None:
    """Make the renames in these log directories durable, then remove the mark. Waits for the disk.

    If the disk refused to rename the directory that was `left`, the mark stays: the next start may find both.
    """
    for directory in directories:
        disk.sync_directory(directory)
    if not disk.exists(left):
        remove_if_there(disk, f"{moved}/{layout.MOVED}")


def settle(
    places: Sequence[tuple[LogDirectory, DirectoryContents]],
    *,
    complete: bool,
    new_uuid: Callable[[], uuid.UUID],
    note: Callable[[str], None],
) -> None:
    """Change the directories, and the lists of their contents, so that each replica has one log. Waits for the disk.

    `complete` says that no log directory is offline: only then is a log that was not found known to be missing. If no
    mark tells two logs of one replica apart, loading refuses them.
    """
    live: dict[TopicPartition, list[Place]] = {}
    future: dict[TopicPartition, list[Place]] = {}
    for directory, found in places:
        for row, names in ((live, found.live), (future, found.future)):
            for name, tp in names:
                row.setdefault(tp, []).append((directory, found, name))
    for tp, rivals in live.items():
        # What fails is going offline: the replicas of the other directories are settled all the same.
        with suppress(DiskError):
            _settle_rivals(tp, rivals, new_uuid, note)
    for tp, copies in future.items():
        with suppress(DiskError):
            _settle_copies(tp, copies, new_uuid, note, has_log=tp in live, complete=complete)


def _settle_rivals(
    tp: TopicPartition, rivals: Sequence[Place], new_uuid: Callable[[], uuid.UUID], note: Callable[[str], None]
) -> None:
    """Of two logs of a replica keep the one that is marked."""
    marked = [place for place in rivals if len(rivals) > 1 and _is_marked(place)]
    for place in rivals if len(marked) == 1 else ():
        if place is not marked[0]:
            _give_up(place, tp, new_uuid, note)


def _settle_copies(
    tp: TopicPartition,
    copies: Sequence[Place],
    new_uuid: Callable[[], uuid.UUID],
    note: Callable[[str], None],
    *,
    has_log: bool,
    complete: bool,
) -> None:
    """Keep one copy; a marked one becomes the log of a replica that has none."""
    kept = copies[0]
    marked = [place for place in copies if _is_marked(place)]
    for directory, _, name in marked if has_log else ():
        remove_if_there(directory.disk, f"{directory.root}/{name}/{layout.MOVED}")
    if complete and not has_log and len(marked) == 1:
        kept = marked[0]
        _become_log(kept, tp, note)
    for place in copies:
        if place is not kept:
            _give_up(place, tp, new_uuid, note)


def _is_marked(place: Place) -> bool:
    directory, _, name = place
    return directory.disk.exists(f"{directory.root}/{name}/{layout.MOVED}")


def _become_log(place: Place, tp: TopicPartition, note: Callable[[str], None]) -> None:
    directory, found, name = place
    note(f"{directory.root}/{name}: its move was decided, so it is the log of {tp}")
    found.future.remove((name, tp))
    found.live.append((layout.directory_name(tp), tp))
    directory.disk.rename(f"{directory.root}/{name}", f"{directory.root}/{layout.directory_name(tp)}")
    directory.disk.sync_directory(directory.root)


def _give_up(place: Place, tp: TopicPartition, new_uuid: Callable[[], uuid.UUID], note: Callable[[str], None]) -> None:
    directory, found, name = place
    note(f"{directory.root}/{name}: {tp} was moved to another log directory, this one is removed")
    for names in (found.live, found.future):
        if (name, tp) in names:
            names.remove((name, tp))
    gone = layout.marked_directory_name(tp, new_uuid(), DirectoryKind.DELETED)
    found.deleted.append((gone, tp))
    directory.disk.rename(f"{directory.root}/{name}", f"{directory.root}/{gone}")
    directory.disk.sync_directory(directory.root)
