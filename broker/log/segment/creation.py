"""New segments: beside the others, or aside until all the others go."""

from contextlib import suppress

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, DiskError, remove_if_there
from logyard.broker.log.segment import former
from logyard.broker.log.segment.segment import Segment


def create(
    disk: Disk,
    directory: str,
    base_offset: int,
    config: TopicConfig,
    now_ms: int,
    *,
    after: Segment | None = None,
    suffix: str = "",
) -> Segment:
    """Create a new, empty, active segment behind `after`; raises DiskError, and leaves no files of it then.

    With a suffix (layout.NEW) it lies aside, beside one of the same base offset: until `put_in_place`.
    """
    segment = Segment(disk, directory, base_offset, created_ms=now_ms)
    segment.reset_indexes()
    segment.replace_aborted([])
    try:
        segment.activate(config, suffix, former.told(after))
    except DiskError:
        # The log goes on in the segment before; to the next start this empty one would be the log's end.
        for kind in layout.ALWAYS_THERE:
            with suppress(DiskError):
                remove_if_there(disk, segment.path(kind, suffix))
        raise
    return segment


def put_in_place(segment: Segment) -> None:
    """Give a segment that was created aside its names: opens nothing. The log first: it tells where the log begins."""
    for kind in layout.ALWAYS_THERE:
        segment.disk.rename(segment.path(kind, layout.NEW), segment.path(kind))
