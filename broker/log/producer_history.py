"""The producers' states of one log and their files: a snapshot per segment, and the reload after a truncation."""

from collections.abc import Sequence

from logyard.broker.log.disk.port import Disk, remove_if_there
from logyard.broker.log.flush import FlushState
from logyard.broker.log.producers import ProducerEntry, ProducerStates, encode_snapshot
from logyard.broker.log.recovery import replay
from logyard.broker.log.segment.segment_list import SegmentList

# Encoding or cutting a producer takes half a microsecond; the event loop does so few, where a log is rolled or cut.
AT_ONCE = 2000


class ProducerHistory:
    """Keeps `states` in line with the log's batches.

    `pending_reload` is the reading to be done before the next append, after a truncation; None if `states` are
    complete.
    """

    __slots__ = ("_disk", "_flush_state", "_segments", "directory", "pending_reload", "states")

    def __init__(
        self, disk: Disk, directory: str, states: ProducerStates, segments: SegmentList, flush_state: FlushState
    ) -> None:
        self.directory = directory
        self.states = states
        self.pending_reload: replay.Reload | None = None
        self._disk, self._segments, self._flush_state = disk, segments, flush_state

    def write_snapshot(self, offset: int) -> None:
        """Write the states as the snapshot of everything below `offset`; the next flush syncs the file.

        Those of very many producers the next flush writes, in its thread. After a kill in between the file is empty,
        as after a loss of power, and the states are read from the log.
        """
        if len(self.states) <= AT_ONCE:
            self._flush_state.note(replay.write_snapshot(self._disk, self.directory, offset, self.states))
            return
        entries = list(self.states.entries.values())
        self._flush_state.note_late(replay.snapshot_path(self.directory, offset), lambda: encode_snapshot(entries))

    def cut(self, end: int, snapshots: Sequence[int]) -> None:
        """The log was cut and ends at `end` now: forget the batches above it, or prepare a reload if the states do not
        suffice, or are very many: a thread cuts those.

        `snapshots` are the offsets of those that were there before the cut; this opens nothing.
        """
        self._remove_above(end, snapshots)
        known: Sequence[ProducerEntry] | None = None
        if self.pending_reload is not None:
            known = self.pending_reload.known  # nothing was written since
        elif len(self.states) > AT_ONCE:
            known = list(self.states.entries.values())
        elif self.states.cut(end):
            return
        start = self._segments[0].base_offset
        self.pending_reload = replay.Reload(self._disk, self.directory, self._segments.all, start, end, known)

    def clear(self, snapshots: Sequence[int]) -> None:
        """The log starts over, empty; otherwise as `cut`."""
        self._remove_above(-1, snapshots)
        self.states.replace(())
        self.pending_reload = None

    def _remove_above(self, end: int, snapshots: Sequence[int]) -> None:
        for offset in snapshots:
            if offset > end:
                remove_if_there(self._disk, replay.snapshot_path(self.directory, offset))
                self._flush_state.names_changed()

    def finish_reload(self, reload: replay.Reload) -> list[str]:
        """Take over the states that were read, unless the log was cut again since; returns the parts that were
        unreadable."""
        if self.pending_reload is not reload:
            return []
        self.states.take_over(reload.states)
        self.pending_reload = None
        return reload.passed_over
