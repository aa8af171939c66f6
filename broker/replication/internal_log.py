"""An internal topic through this broker's replicas: batches appended with acks=all, a partition read from its start."""

from collections.abc import Callable
from functools import partial

from logyard.broker.errors import CorruptData, ErrorCode, StorageError
from logyard.broker.event_loop import Pending, SubmitBlocking
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.header import BatchHeader
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.ports import Slice
from logyard.broker.replication.replicas import Replicas

READ_BYTES = 1 << 20
READS_IN_VAIN_MAX = 100

TakeBatch = Callable[[memoryview, BatchHeader], None]


class InternalLog:
    """One internal topic."""

    def __init__(self, replicas: Replicas, run_blocking: SubmitBlocking, topic: str) -> None:
        self._replicas = replicas
        self._run_blocking = run_blocking
        self._topic = topic

    def append(
        self, partition: int, made: bytes | bytearray, timeout_ms: int, done: Callable[[ProduceResult], None]
    ) -> None:
        """Append a batch now; call `done` once the whole ISR has it, or with the error if it has not.

        `done` may be called before this returns.
        """
        tp = TopicPartition(self._topic, partition)
        outcome = self._replicas.producing.append(
            [(tp, memoryview(made))],
            acks=-1,
            timeout_ms=timeout_ms,
            origin=Origin.COORDINATOR,
            internal_topics=True,
        )
        if isinstance(outcome, list):
            done(outcome[0])
        else:
            outcome.add_done_callback(lambda answered: done(_result(answered, tp)))

    async def read(self, partition: int, take: TakeBatch) -> int:
        """Call `take` in a thread with every batch from the partition's start to its end; return the end's offset.

        What is appended while it is read is read too, also after a move to another log directory, which has put another
        log of the same batches in the place of the first. Raises StorageError if there is no log, if it cannot be read,
        or if the bounds of a batch cannot be, and what `take` raises.
        """
        offset, in_vain = self._log(partition).log_start_offset, 0
        while offset < (log := self._log(partition)).log_end_offset:
            piece = log.read(offset, READ_BYTES, limit_offset=log.log_end_offset, min_one=True)
            size, following = await self._run_blocking(partial(self._hand_over, piece, take))
            if piece.size and not size:
                # The log was compacted or truncated meanwhile: its bytes have moved.
                in_vain += 1
                if in_vain == READS_IN_VAIN_MAX:
                    raise StorageError(f"{self._topic}-{partition} cannot be read from offset {offset} on")
                offset = max(offset, log.log_start_offset)
                continue
            in_vain = 0
            if following <= offset:
                break  # compaction has left nothing before the end
            offset = following
        return log.log_end_offset

    def _log(self, partition: int) -> PartitionLog:
        found = self._replicas.partition(TopicPartition(self._topic, partition))
        if found is None or found.log is None:
            raise StorageError(f"{self._topic}-{partition} has no log here")
        return found.log

    def _hand_over(self, piece: Slice, take: TakeBatch) -> tuple[int, int]:
        """Read a piece of the log, in a thread. Returns its size in bytes and the offset after its last whole batch."""
        data, following = memoryview(piece.load()), -1
        try:
            found = list(batch.iter_headers(data))
        except CorruptData as error:
            raise StorageError(f"{self._topic} has a batch that cannot be read: {error}") from error
        for position, header in found:
            following = header.last_offset + 1
            take(data[position : position + header.length], header)
        return len(data), following

    def is_replicated(self, partition: int, offset: int) -> bool:
        """Whether everything below that offset is on the whole ISR."""
        found = self._replicas.partition(TopicPartition(self._topic, partition))
        return found is not None and found.log is not None and found.log.high_watermark >= offset


def _result(answered: Pending[list[ProduceResult]], tp: TopicPartition) -> ProduceResult:
    try:
        return answered.result()[0]
    except BaseException:  # a cancelled future too
        # The caller must get an answer: a change that stays pending would block its id.
        return ProduceResult(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
