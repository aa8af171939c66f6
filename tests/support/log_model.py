"""What a log must hold: the batches that were written, as bytes, and what follows from them."""

from dataclasses import dataclass, field

from logyard.broker.records import batch
from tests.support.logs import offsets

TRANSACTIONAL = 11  # the producer whose batches belong to transactions


@dataclass
class Model:
    """What the log must hold: batches from oldest to newest, its start and end."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epoch: int = 0
    furthest_start: int = 0  # what a start that no checkpoint kept had let go of stays gone from the epochs

    def whole(self) -> list[tuple[int, int, bytes]]:
        return [(*offsets(data)[0], data) for data in self.batches]

    def visible(self, start: int) -> bytes:
        return b"".join(data for _, last, data in self.whole() if last >= start)

    def epochs(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for data in self.batches:
            header = batch.parse_header(data)
            if not found or header.partition_leader_epoch > found[-1][0]:
                found.append((header.partition_leader_epoch, header.base_offset))
        return found

    def aborted(self) -> list[tuple[int, int]]:
        """First offset and marker of every aborted transaction."""
        found: list[tuple[int, int]] = []
        first: int | None = None
        for data in self.batches:
            header = batch.parse_header(data)
            if header.producer_id != TRANSACTIONAL:
                continue
            if not header.is_control:
                first = header.base_offset if first is None else first
                continue
            if first is not None and batch.control_type(batch.records(data)[0]) == batch.ABORT:
                found.append((first, header.base_offset))
            first = None
        return found
