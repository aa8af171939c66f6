"""WriteTxnMarkers (27), between brokers: a coordinator has leaders write the markers of transactions (facts §17.5).

v2 tells the transaction's version: from 2 on a marker has a higher epoch than the transaction's batches (KIP-1228).
"""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.transactions.markers.writing import EXPECTED, Codes
from logyard.broker.transactions.ports import Marker


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    markers = [await _marker(pauses, each) async for each in pauses.between(message.markers)]
    codes = await services.marker_writer.write(markers)
    answered = pauses.between(codes.items())
    return {
        "markers": [{"producer_id": pid, "topics": await _by_topic(pauses, found)} async for pid, found in answered]
    }


async def _marker(pauses: Pauses, fields: Any) -> Marker:
    partitions = await pauses.partitions((t.name, t.partition_indexes) for t in fields.topics)
    return Marker(
        fields.producer_id,
        fields.producer_epoch,
        fields.coordinator_epoch,
        fields.transaction_result,
        partitions,
        fields.transaction_version,
    )


async def _by_topic(pauses: Pauses, codes: Codes) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    async for tp, code in pauses.between(codes.items()):
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
