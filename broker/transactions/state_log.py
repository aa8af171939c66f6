"""`__transaction_state` through this broker's replicas."""

from collections.abc import Callable, Sequence

from logyard.broker.clock import Clock
from logyard.broker.records import batch
from logyard.broker.records.header import BatchHeader
from logyard.broker.records.legacy import legacy_records
from logyard.broker.replication.internal_log import InternalLog
from logyard.broker.transactions.ports import Acknowledged, KeyValue


class ReplicatedStates:
    """The StateLog of a real broker."""

    def __init__(self, log: InternalLog, clock: Clock, batch_bytes_max: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock
        self._batch_bytes_max = batch_bytes_max

    def append(self, partition: int, records: Sequence[KeyValue], timeout_ms: int, done: Acknowledged) -> None:
        now_ms = self._clock.now_ms()
        made = batch.build([batch.Record(i, now_ms, key, value) for i, (key, value) in enumerate(records)])
        self._log.append(partition, made, timeout_ms, lambda result: done(result.error))

    async def read(self, partition: int, take: Callable[[KeyValue], None]) -> int:
        def take_batch(data: memoryview, header: BatchHeader) -> None:
            if header.magic == 2 and header.is_control:
                return
            for record in legacy_records(data) if header.magic < 2 else batch.records(data):
                if record.key is not None:
                    take((record.key, record.value))

        return await self._log.read(partition, take_batch)

    def is_replicated(self, partition: int, offset: int) -> bool:
        return self._log.is_replicated(partition, offset)

    def batch_bytes_max(self) -> int:
        return self._batch_bytes_max()
