"""Appends to `__consumer_offsets` with acks=all, and reads its partitions, through this broker's replicas."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from logyard.broker.clock import Clock
from logyard.broker.config.key_types import INT_MAX
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.event_loop import Pending, SubmitBlocking
from logyard.broker.groups.ports import Appended, KeyValue, Producer, StoredBatch
from logyard.broker.log.producers import Origin
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.decode import ABORT, COMMIT, control_type
from logyard.broker.records.header import BatchHeader
from logyard.broker.records.legacy import legacy_records
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.internal_log import InternalLog
from logyard.broker.replication.replicas import Replicas


class ReplicatedOffsets:
    """The OffsetsLog (ports.py) of a real broker."""

    def __init__(
        self,
        replicas: Replicas,
        partitioning: Partitioning,
        clock: Clock,
        run_blocking: SubmitBlocking,
        timeout_ms: int = 5000,
    ) -> None:
        self._replicas = replicas
        self._partitioning = partitioning
        self._clock = clock
        self._internal = InternalLog(replicas, run_blocking, OFFSETS_TOPIC)
        self._timeout_ms = timeout_ms

    @property
    def partition_count(self) -> int:
        return self._partitioning.partition_count

    def batch_bytes_max(self, partition: int) -> int:
        replica = self._replicas.partition(TopicPartition(OFFSETS_TOPIC, partition))
        # Without a log nothing is taken: the append says why.
        return INT_MAX if replica is None or replica.log is None else replica.log.config.max_message_bytes

    def append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None = None) -> Appended:
        now_ms = self._clock.now_ms()
        tp = TopicPartition(OFFSETS_TOPIC, partition)
        listed = [batch.Record(i, now_ms, key, value) for i, (key, value) in enumerate(records)]
        if producer is None:
            made = batch.build(listed)
        else:
            producer_id, epoch = producer
            made = batch.build(
                listed, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
            )
        replica = self._replicas.partition(tp)
        log = replica.log if replica is not None else None
        end = log.log_end_offset if log is not None else -1
        outcome = self._replicas.producing.append(
            [(tp, memoryview(made))],
            acks=-1,
            timeout_ms=self._timeout_ms,
            origin=Origin.COORDINATOR,
            internal_topics=True,
        )
        return _Acknowledgement(outcome, end if log is not None and log.log_end_offset > end else -1)

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        if self._replicas.partition(TopicPartition(OFFSETS_TOPIC, partition)) is None:
            return

        def take_batch(data: memoryview, header: BatchHeader) -> None:
            try:
                stored = _stored(data, header)
            except CorruptData as error:
                note(f"batch at offset {header.base_offset}: {error}")
                return
            if stored is not None:
                take(stored)

        # Markers are appended while the groups are read, and only this read finds them.
        await self._internal.read(partition, take_batch)


class _Acknowledgement:
    """Awaits the result of a Produce to one partition; gives its error code."""

    def __init__(self, outcome: list[ProduceResult] | Pending[list[ProduceResult]], base_offset: int) -> None:
        self.base_offset = base_offset
        self._outcome = outcome

    def __await__(self) -> Generator[Any, None, ErrorCode]:
        outcome = self._outcome
        results = outcome if isinstance(outcome, list) else (yield from outcome.__await__())
        return results[0].error


def _stored(data: memoryview, header: BatchHeader) -> StoredBatch | None:
    """Return the batch's records or its marker; None for a control batch of another kind. Raises CorruptData."""
    records = legacy_records(data) if header.magic < 2 else batch.records(data)
    if header.magic == 2 and header.is_control:
        kind = control_type(records[0]) if records else None
        if kind not in (ABORT, COMMIT):
            return None
        return StoredBatch(header.base_offset, (), header.producer_id, kind == COMMIT)
    producer_id = header.producer_id if header.magic == 2 and header.is_transactional else None
    return StoredBatch(header.base_offset, [(r.key, r.value) for r in records if r.key is not None], producer_id)
