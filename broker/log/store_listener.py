"""What the store does when a log reports an event (`LogListener`)."""

from collections.abc import Callable, Iterable, Sequence

from logyard.broker.log.background import DiskWork
from logyard.broker.log.checkpoint_writer import CheckpointWriter
from logyard.broker.log.disk.port import remove_if_there
from logyard.broker.log.flusher import Flusher
from logyard.broker.log.partition_log import PartitionLog


class StoreListener:
    """Starts the flushes, checkpoint writes and removals that follow a log's events.

    `on_cutting` is called before cuts, `on_cut` after them, `note` for damage.
    """

    def __init__(
        self,
        flusher: Flusher,
        checkpoints: CheckpointWriter,
        disk_work: DiskWork,
        on_cutting: Callable[[PartitionLog, int], object],
        on_cut: Callable[[PartitionLog, int], object],
        note: Callable[[str], None],
    ) -> None:
        self._flusher, self._checkpoints = flusher, checkpoints
        self._disk_work, self._on_cutting, self._on_cut, self._note = disk_work, on_cutting, on_cut, note

    def rolled(self, log: PartitionLog) -> None:
        self._flusher.flush_soon(log, whole=False)

    def retired(self, log: PartitionLog, paths: Sequence[str]) -> None:
        names = [path.rpartition("/")[2] for path in paths]
        self._disk_work.remove_later(log.config.file_delete_delay_ms, lambda: _remove(log, names))

    def cutting(self, log: PartitionLog, offset: int) -> None:
        self._checkpoints.before_cut(log, offset)
        self._on_cutting(log, offset)

    def cut(self, log: PartitionLog, offset: int) -> None:
        """Make the cut durable soon: after a power loss the records that were cut off might be found after newer
        ones."""
        self._flusher.flush_soon(log, whole=True)
        self._on_cut(log, offset)

    def damaged(self, log: PartitionLog, what: str) -> None:
        self._note(f"{log.directory}: {what}")


def _remove(log: PartitionLog, names: Iterable[str]) -> None:
    """Remove files of a log where it lies by now: a move's copy has taken its log's place meanwhile."""
    for name in names:
        remove_if_there(log.disk, f"{log.directory}/{name}")
