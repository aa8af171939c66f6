"""AddPartitionsToTxn (24): v0 to v3 by a client, v4 and v5 by brokers, for many transactions (KIP-890). A broker that
does not only verify adds for a client that goes by `transaction.version` 2 (facts §17.12).

If a partition is refused or unknown, nothing is added to its transaction, and the other partitions get
OPERATION_NOT_ATTEMPTED (facts §17.3).
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import INTERNAL_TOPICS, TopicPartition
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.transactional import answered_since
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.transaction import RAISING_VERSION

PRODUCER_FENCED_SINCE = 2
BY_BROKERS_SINCE = 4

Codes = dict[TopicPartition, ErrorCode]


async def handle(services: Services, request: Request, message: Any) -> Fields:
    if request.api_version < BY_BROKERS_SINCE:
        transactional_id = message.v3_and_below_transactional_id
        producer = Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        asked = _partitions(message.v3_and_below_topics)
        codes = _refused(asked, _client_refusals(services, request, asked))
        if not codes:
            code = await services.transactions.add_partitions(transactional_id, producer, asked)
            codes = dict.fromkeys(asked, answered_since(PRODUCER_FENCED_SINCE, request, code))
        return {"results_by_topic_v3_and_below": _topics(codes)}
    # Together: each addition waits until it is replicated.
    codes_of_all = await asyncio.gather(*(_by_broker(services, t) for t in message.transactions))
    results = [
        {"transactional_id": t.transactional_id, "topic_results": _topics(codes)}
        for t, codes in zip(message.transactions, codes_of_all, strict=True)
    ]
    return {"error_code": 0, "results_by_transaction": results}


async def _by_broker(services: Services, transaction: Any) -> Codes:
    asked = _partitions(transaction.topics)
    codes = _refused(asked, _unknown(services, asked))
    if codes:
        return codes
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return services.transactions.verify_partitions(transaction.transactional_id, producer, asked)
    code = await services.transactions.add_partitions(
        transaction.transactional_id, producer, asked, client_version=RAISING_VERSION
    )
    return dict.fromkeys(asked, code)


def _partitions(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _client_refusals(services: Services, request: Request, asked: Sequence[TopicPartition]) -> Codes:
    refusals = _unknown(services, asked)
    writable = authorization.topics(services, request, [tp.topic for tp in asked if tp.topic not in INTERNAL_TOPICS])
    for tp in asked:
        if tp.topic in INTERNAL_TOPICS or tp.topic not in writable:
            refusals[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return refusals


def _unknown(services: Services, asked: Sequence[TopicPartition]) -> Codes:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {tp: missing for tp in asked if services.metadata.partition(tp) is None}


def _refused(asked: Sequence[TopicPartition], refusals: Codes) -> Codes:
    """Return an error for each partition if one is refused, else nothing."""
    return {tp: refusals.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in asked} if refusals else {}


def _topics(codes: Codes) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for tp, code in codes.items():
        result = {"partition_index": tp.partition, "partition_error_code": int(code)}
        topics.setdefault(tp.topic, []).append(result)
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    if version >= BY_BROKERS_SINCE:
        return {"error_code": int(code)}
    return {"results_by_topic_v3_and_below": _topics(dict.fromkeys(_partitions(message.v3_and_below_topics), code))}


HANDLER = Handler(message=handle, error=error)
