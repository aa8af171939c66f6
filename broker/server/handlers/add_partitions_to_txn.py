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
from logyard.broker.server.large_answers import Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.transactional import answered_since
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.transaction import RAISING_VERSION

PRODUCER_FENCED_SINCE = 2
BY_BROKERS_SINCE = 4

# So many transactions are begun in one turn of the event loop: each appends a record.
TRANSACTIONS_AT_ONCE = 50

Codes = dict[TopicPartition, ErrorCode]


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    if request.api_version < BY_BROKERS_SINCE:
        transactional_id = message.v3_and_below_transactional_id
        producer = Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        asked = await _named_in(pauses, message.v3_and_below_topics)
        codes = await _refused(pauses, asked, await _client_refusals(services, request, pauses, asked))
        if not codes:
            code = await services.transactions.add_partitions(transactional_id, producer, asked)
            codes = dict.fromkeys(asked, answered_since(PRODUCER_FENCED_SINCE, request, code))
        return {"results_by_topic_v3_and_below": await _topics(pauses, codes)}
    # Together: each addition waits until it is replicated.
    begun = []
    for start in range(0, len(message.transactions), TRANSACTIONS_AT_ONCE):
        if start:
            await services.turns.next()
        portion = message.transactions[start : start + TRANSACTIONS_AT_ONCE]
        begun.append(asyncio.gather(*(_by_broker(services, pauses, t) for t in portion)))
    codes_of_all = [codes for portion in begun for codes in await portion]
    results = []
    for t, codes in zip(message.transactions, codes_of_all, strict=True):
        await pauses.after(1)
        results.append({"transactional_id": t.transactional_id, "topic_results": await _topics(pauses, codes)})
    return {"error_code": 0, "results_by_transaction": results}


async def _by_broker(services: Services, pauses: Pauses, transaction: Any) -> Codes:
    await pauses.after(parts_of_name(transaction.transactional_id))
    asked = await _named_in(pauses, transaction.topics)
    codes = await _refused(pauses, asked, await _unknown(services, pauses, asked))
    if codes:
        return codes
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return services.transactions.verify_partitions(transaction.transactional_id, producer, asked)
    code = await services.transactions.add_partitions(
        transaction.transactional_id, producer, asked, client_version=RAISING_VERSION
    )
    return dict.fromkeys(asked, code)


async def _named_in(pauses: Pauses, topics: Any) -> list[TopicPartition]:
    """Return each partition once: those that are all known are no more than the cluster has."""
    return list(await pauses.partitions((topic.name, topic.partitions) for topic in topics))


async def _client_refusals(
    services: Services, request: Request, pauses: Pauses, asked: Sequence[TopicPartition]
) -> Codes:
    refusals = await _unknown(services, pauses, asked)
    others = (tp.topic for tp in asked if tp.topic not in INTERNAL_TOPICS)
    writable = await authorization.topics_of_many(services, request, pauses, others)
    async for tp in pauses.between(asked):
        if tp.topic in INTERNAL_TOPICS or tp.topic not in writable:
            refusals[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return refusals


async def _unknown(services: Services, pauses: Pauses, asked: Sequence[TopicPartition]) -> Codes:
    missing: Codes = {}
    async for tp in pauses.between(asked):
        if services.metadata.partition(tp) is None:
            missing[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return missing


async def _refused(pauses: Pauses, asked: Sequence[TopicPartition], refusals: Codes) -> Codes:
    """Return an error for each partition if one is refused, else nothing."""
    codes: Codes = {}
    async for tp in pauses.between(asked if refusals else ()):
        codes[tp] = refusals.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED)
    return codes


async def _topics(pauses: Pauses, codes: Codes) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    async for tp, code in pauses.between(codes.items()):
        topics.setdefault(tp.topic, []).append(_result(tp, code))
    return _named(topics)


def _result(tp: TopicPartition, code: ErrorCode) -> Fields:
    return {"partition_index": tp.partition, "partition_error_code": int(code)}


def _named(topics: dict[str, list[Fields]]) -> list[Fields]:
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    if version >= BY_BROKERS_SINCE:
        return {"error_code": int(code)}
    asked = (TopicPartition(topic.name, p) for topic in message.v3_and_below_topics for p in topic.partitions)
    topics: dict[str, list[Fields]] = {}
    for tp in dict.fromkeys(asked):
        topics.setdefault(tp.topic, []).append(_result(tp, code))
    return {"results_by_topic_v3_and_below": _named(topics)}


HANDLER = Handler(message=handle, error=error)
