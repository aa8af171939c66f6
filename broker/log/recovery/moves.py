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
from collections.abc import Callable, Iterable, Sequence

from logyard.broker.log import layout
from logyard.broker.log.directory import DirectoryContents, LogDirectory
from logyard.broker.log.disk.port import Disk, remove_if_there, stage
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
        marked = [place for place in rivals if len(rivals) > 1 and _is_marked(place)]
        if len(marked) == 1:
            for place in rivals:
                if place is not marked[0]:
                    _give_up(place, tp, new_uuid, note)
    _unmark_copies(place for tp, copies in future.items() if tp in live for place in copies)
    for tp, copies in future.items():
        marked = [place for place in copies if tp not in live and _is_marked(place)]
        kept = copies[0]
        if complete and len(marked) == 1:
            kept = marked[0]
            _become_log(kept, tp, note)
        for place in copies:
            if place is not kept:
                _give_up(place, tp, new_uuid, note)


def _unmark_copies(places: Iterable[Place]) -> None:
    for directory, _, name in places:
        remove_if_there(directory.disk, f"{directory.root}/{name}/{layout.MOVED}")


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
