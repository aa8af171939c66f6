"""`__consumer_offsets` through this broker's replicas: appends with acks=all, and the whole partition read back."""

from collections.abc import AsyncIterator, Callable, Sequence

from logyard.broker.clock import Clock
from logyard.broker.coordinator.ports import KeyValue
from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.log.log import Origin
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.replication.ports import RunBlocking
from logyard.broker.replication.replicas import Replicas

TOPIC = "__consumer_offsets"
READ_BYTES = 1 << 20
READS_IN_VAIN_MAX = 100


class ReplicatedOffsets:
    """The OffsetsLog of a real broker."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: MetadataCache,
        clock: Clock,
        run_blocking: RunBlocking,
        default_partition_count: Callable[[], int],
        timeout_ms: int = 5000,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._clock = clock
        self._run_blocking = run_blocking
        self._default_partition_count = default_partition_count
        self._timeout_ms = timeout_ms

    @property
    def partition_count(self) -> int:
        return len(self._metadata.partitions(TOPIC)) or self._default_partition_count()

    async def append(self, partition: int, records: Sequence[KeyValue]) -> ErrorCode:
        now_ms = self._clock.now_ms()
        made = batch.build([batch.Record(i, now_ms, key, value) for i, (key, value) in enumerate(records)])
        outcome = self._replicas.append(
            [(TopicPartition(TOPIC, partition), memoryview(made))],
            acks=-1,
            timeout_ms=self._timeout_ms,
            origin=Origin.COORDINATOR,
            internal_topics=True,
        )
        results = outcome if isinstance(outcome, list) else await outcome
        return results[0].error

    async def read(self, partition: int) -> AsyncIterator[list[KeyValue]]:
        found = self._replicas.partition(TopicPartition(TOPIC, partition))
        log = found.log if found is not None else None
        if log is None:
            return
        offset, end, in_vain = log.log_start_offset, log.log_end_offset, 0
        while offset < end:
            piece = log.read(offset, READ_BYTES, limit_offset=end, min_one=True)
            data = memoryview(await self._run_blocking(piece.load))
            if piece.size and not len(data):
                # Compacted or cut in between: the same bytes lie elsewhere now.
                in_vain += 1
                if in_vain == READS_IN_VAIN_MAX:
                    raise StorageError(f"{TOPIC}-{partition} cannot be read from offset {offset} on")
                offset = max(offset, log.log_start_offset)
                continue
            in_vain = 0
            chunk: list[KeyValue] = []
            following = offset
            for position, header in batch.iter_headers(data):
                following = header.last_offset + 1
                if not header.is_control:
                    chunk += [(r.key, r.value) for r in batch.records(data, position) if r.key is not None]
            if following == offset:
                return
            offset = following
            yield chunk
