"""WriteTxnMarkers (27), between brokers: a coordinator has leaders write the markers of transactions (facts §17.5).

v2 tells the transaction's version: from 2 on a marker has a higher epoch than the transaction's batches (KIP-1228).
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import structlog

from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import Pending
from logyard.broker.log.producers import Origin
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.records.build import build_control
from logyard.broker.records.decode import ABORT, COMMIT
from logyard.broker.replication.events import ProduceResult
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
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


async def handle(services: Services, request: Request, message: Any) -> Fields:
    codes: dict[int, Codes] = {}
    waiting = []
    for marker in message.markers:
        found = codes.setdefault(marker.producer_id, {})
        for partitions in _portions(marker):
            await services.turns.next()
            outcome = _append(services, marker, partitions, found)
            if isinstance(outcome, list):
                _take(services, marker, outcome, found)
            else:
                waiting.append(_take_later(services, marker, outcome, found))
    await asyncio.gather(*waiting)
    return {"markers": [{"producer_id": pid, "topics": _by_topic(found)} for pid, found in codes.items()]}


def _portions(marker: Any) -> Iterator[list[TopicPartition]]:
    """Yield the marker's partitions, each once, in portions of MARKERS_PER_TURN."""
    named = (TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
    partitions = list(dict.fromkeys(named))
    for start in range(0, len(partitions), MARKERS_PER_TURN):
        yield partitions[start : start + MARKERS_PER_TURN]


def _append(
    services: Services, marker: Any, partitions: Sequence[TopicPartition], codes: Codes
) -> list[ProduceResult] | Pending[list[ProduceResult]]:
    hosted = services.replicas.partitions()
    entries = []
    for tp in partitions:
        if tp not in hosted:
            codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        batch = build_control(
            COMMIT if marker.transaction_result else ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=services.clock.now_ms(),
        )
        entries.append((tp, memoryview(batch)))
    return services.replicas.producing.append(
        entries,
        acks=-1,
        timeout_ms=services.config.int("request.timeout.ms"),
        origin=_origin(marker),
        internal_topics=True,
    )


def _origin(marker: Any) -> Origin:
    raises = marker.transaction_version >= RAISING_VERSION
    return Origin.RAISING_COORDINATOR if raises else Origin.COORDINATOR


async def _take_later(services: Services, marker: Any, outcome: Pending[list[ProduceResult]], codes: Codes) -> None:
    _take(services, marker, await outcome, codes)


def _take(services: Services, marker: Any, results: Sequence[ProduceResult], codes: Codes) -> None:
    for result in results:
        code = result.error
        if code not in EXPECTED:
            log.error("cannot write a marker", partition=str(result.tp), error=code.name, why=result.message)
            code = ErrorCode.KAFKA_STORAGE_ERROR  # the coordinator sends it again
        elif code is ErrorCode.NONE and result.tp.topic == OFFSETS_TOPIC:
            # Before the answer: then the transaction is complete, and its offsets may be read (KAFKA-17507).
            services.groups.commits.end_transaction(
                result.tp.partition, marker.producer_id, result.base_offset, committed=marker.transaction_result
            )
        codes[result.tp] = code


def _by_topic(codes: Codes) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for tp, code in codes.items():
        topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "error_code": int(code)})
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    expected = code in EXPECTED or code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    told = code if expected else ErrorCode.KAFKA_STORAGE_ERROR
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": index, "error_code": int(told)} for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in message.markers
        ]
    }


HANDLER = Handler(message=handle, error=error)
