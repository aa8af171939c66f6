"""WriteTxnMarkers (27), between brokers: a coordinator has leaders write the markers of transactions (facts §17.5).

v2 tells the transaction's version: from 2 on a marker has a higher epoch than the transaction's batches (KIP-1228).
"""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.transactions.markers.writing import EXPECTED, Codes
from logyard.broker.transactions.ports import Marker


async def handle(services: Services, request: Request, message: Any) -> Fields:
    codes = await services.marker_writer.write([_marker(each) for each in message.markers])
    return {"markers": [{"producer_id": pid, "topics": _by_topic(found)} for pid, found in codes.items()]}


def _marker(fields: Any) -> Marker:
    return Marker(
        fields.producer_id,
        fields.producer_epoch,
        fields.coordinator_epoch,
        fields.transaction_result,
        [TopicPartition(topic.name, index) for topic in fields.topics for index in topic.partition_indexes],
        fields.transaction_version,
    )


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
