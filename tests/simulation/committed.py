"""Readers of committed records."""

from collections.abc import Mapping
from typing import Any

from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import ABORT, control_type, iter_headers, records
from tests.simulation.clients import TROUBLE, Consumer
from tests.simulation.cluster import Cluster
from tests.simulation.ledger import BrokenPromise, Ledger
from tests.simulation.transfers import Transfers


class Committed(Consumer):
    """Reads as consumers with isolation.level=read_committed do."""

    isolation = 1  # READ_COMMITTED

    def saw(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """It was shown a record that it had not been shown before."""
        raise NotImplementedError

    def _take(self, tp: TopicPartition, data: memoryview, found: Any) -> None:
        waiting = sorted((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
        aborted: set[int] = set()
        for position, header in iter_headers(data):
            if header.last_offset >= found.last_stable_offset:
                stable = found.last_stable_offset
                raise BrokenPromise(f"{tp}: offset {header.last_offset} shown, the last stable offset is {stable}")
            batch = records(data[position : position + header.length])
            while waiting and waiting[0][0] <= header.last_offset:
                aborted.add(waiting.pop(0)[1])
            if header.is_control:
                if control_type(next(iter(batch))) == ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                for record in batch:
                    if record.offset >= self.position[tp]:
                        assert record.value is not None
                        self.saw(tp, record.offset, bytes(record.value))
            self.position[tp] = max(self.position[tp], header.next_offset)


class CommittedReader(Committed):
    """Tells what it was shown of everybody's transfers."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        seed: str,
        ledger: Ledger,
        topics: Mapping[str, int],
        transfers: Transfers,
    ) -> None:
        super().__init__(name, cluster, seed, ledger, topics)
        self._transfers = transfers

    def saw(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        self._transfers.saw(tp, offset, value)


class Window(Committed):
    """What somebody who writes, too, has read so far, by partition in the order of offsets; it reads when told to."""

    def __init__(self, name: str, cluster: Cluster, seed: str, topics: Mapping[str, int]) -> None:
        super().__init__(name, cluster, seed, Ledger(), topics)
        self.seen: dict[TopicPartition, list[tuple[int, bytes]]] = {tp: [] for tp in self.position}

    def saw(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        self.seen[tp].append((offset, value))

    async def fetch_up_to(self, tp: TopicPartition, end: int) -> None:
        """Read on to that offset, or to where nothing more is shown now. Raises LinkError, CorruptData."""
        before = -1
        while before < self.position[tp] < end:
            before = self.position[tp]
            await self.fetch(tp)

    async def looked_up(self) -> None:
        """Learn who leads what, after a while."""
        await self.rest(0.1)
        try:
            await self.refresh()
        except TROUBLE:
            await self.rest(0.2)
