"""Writes markers to partitions that this broker leads, whoever coordinates their transactions (facts §17.5)."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import structlog

from logyard.broker import tasks
from logyard.broker.clock import Clock
from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import Pending
from logyard.broker.log.producers import Origin
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.records.build import build_control
from logyard.broker.records.decode import ABORT, COMMIT
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.replicas import Replicas
from logyard.broker.transactions.ports import Marker, MarkerAnswer, MarkerLinks
from logyard.broker.transactions.transaction import RAISING_VERSION

# The markers that are appended in one turn of the event loop, which takes some milliseconds.
MARKERS_PER_TURN = 50

# The codes that a coordinator can handle. Any other would end its work on this transaction and on further ones.
EXPECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)

Codes = dict[TopicPartition, ErrorCode]

log = structlog.get_logger("logyard.transactions")


class EndOffsets(Protocol):
    """Ends the pending offsets of a transaction, as `groups.commits.Commits.end_transaction` does."""

    def __call__(self, partition: int, producer_id: int, marker_offset: int, *, committed: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class MarkerWriter:
    """`next_turn` waits for a turn of the event loop, `timeout_ms` returns how long replication may take."""

    replicas: Replicas
    clock: Clock
    timeout_ms: Callable[[], int]
    end_offsets: EndOffsets
    next_turn: Callable[[], Awaitable[None]]

    async def write(self, markers: Sequence[Marker]) -> Mapping[int, Codes]:
        """Append markers, and wait until the whole ISR has them; return EXPECTED codes by producer id."""
        codes: dict[int, Codes] = {}
        waiting = []
        in_this_turn = 0
        for marker in markers:
            found = codes.setdefault(marker.producer_id, {})
            for partitions in _portions(marker):
                in_this_turn += len(partitions) or 1
                if in_this_turn > MARKERS_PER_TURN:
                    await self.next_turn()
                    in_this_turn = len(partitions)
                outcome = self._append(marker, partitions, found)
                if isinstance(outcome, list):
                    self._take(marker, outcome, found)
                else:
                    waiting.append(tasks.answering(self._take_later(marker, outcome, found)))
        for number, taken in enumerate(waiting, 1):
            await taken
            if number % MARKERS_PER_TURN == 0:
                await self.next_turn()
        return codes

    def _append(
        self, marker: Marker, partitions: Sequence[TopicPartition], codes: Codes
    ) -> list[ProduceResult] | Pending[list[ProduceResult]]:
        hosted = self.replicas.partitions()
        entries = []
        for tp in partitions:
            if tp not in hosted:
                codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            batch = build_control(
                COMMIT if marker.commits else ABORT,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=self.clock.now_ms(),
            )
            entries.append((tp, memoryview(batch)))
        if not entries:
            return []
        raises = marker.version >= RAISING_VERSION
        return self.replicas.producing.append(
            entries,
            acks=-1,
            timeout_ms=self.timeout_ms(),
            origin=Origin.RAISING_COORDINATOR if raises else Origin.COORDINATOR,
            internal_topics=True,
        )

    async def _take_later(self, marker: Marker, outcome: Pending[list[ProduceResult]], codes: Codes) -> None:
        self._take(marker, await outcome, codes)

    def _take(self, marker: Marker, results: Sequence[ProduceResult], codes: Codes) -> None:
        for result in results:
            code = result.error
            if code not in EXPECTED:
                log.error("cannot write a marker", partition=str(result.tp), error=code.name, why=result.message)
                code = ErrorCode.KAFKA_STORAGE_ERROR  # the coordinator sends it again
            elif code is ErrorCode.NONE and result.tp.topic == OFFSETS_TOPIC:
                # Before the answer: then the transaction is complete, and its offsets may be read (KAFKA-17507).
                self.end_offsets(result.tp.partition, marker.producer_id, result.base_offset, committed=marker.commits)
            codes[result.tp] = code


def _portions(marker: Marker) -> Iterator[list[TopicPartition]]:
    """Yield the marker's partitions in portions of MARKERS_PER_TURN; none are one empty portion."""
    left = iter(marker.partitions)
    yield list(islice(left, MARKERS_PER_TURN))
    while portion := list(islice(left, MARKERS_PER_TURN)):
        yield portion


class NearMarkers:
    """Markers for this broker's own partitions are written without a connection; `far` sends the others."""

    def __init__(self, broker_id: int, near: MarkerWriter, far: MarkerLinks) -> None:
        self._broker_id, self._near, self._far = broker_id, near, far

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Awaitable[Mapping[int, MarkerAnswer]]:
        """See `MarkerLinks`."""
        if broker_id == self._broker_id:
            return self._near.write(markers)
        return self._far.write_markers(broker_id, markers)
