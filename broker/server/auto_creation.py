"""Topics made by use: unknown ones named in Metadata, and the internal ones when first needed (facts §14).

The controller is asked as any admin client would ask it; the answer is the error clients get until the topic is led.
"""

from typing import Any

from logyard.broker.client.controller_link import ToController
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logyard.broker.replication.ports import LinkError

CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 5

# The topic is there or on its way: ask again in a moment.
_UNDER_WAY = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)


class AutoCreate:
    """Creates on behalf of clients, each topic once at a time."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache, controller: ToController) -> None:
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._under_way: dict[str, None] = {}

    async def create(self, name: str) -> ErrorCode:
        """Make an ordinary topic with the controller's defaults; LEADER_NOT_AVAILABLE once it is being made."""
        return await self._make({"name": name, "num_partitions": -1, "replication_factor": -1})

    async def create_internal(self, name: str) -> ErrorCode:
        """Make an internal topic with its settings.

        INVALID_REPLICATION_FACTOR while too few brokers live for its replicas, UNKNOWN_TOPIC_OR_PARTITION for a topic
        that is not internal.
        """
        if name == OFFSETS_TOPIC:
            topic = self._offsets_topic()
        elif name == TRANSACTIONS_TOPIC:
            topic = self._transactions_topic()
        else:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(self._metadata.brokers) < topic["replication_factor"]:
            return ErrorCode.INVALID_REPLICATION_FACTOR
        configs = [{"name": key, "value": str(value)} for key, value in topic["configs"].items()]
        return await self._make({**topic, "name": name, "configs": configs})

    def _offsets_topic(self) -> dict[str, Any]:
        config = self._config
        return {
            "num_partitions": config.int("offsets.topic.num.partitions"),
            "replication_factor": config.int("offsets.topic.replication.factor"),
            "configs": {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": config.int("offsets.topic.segment.bytes"),
            },
        }

    def _transactions_topic(self) -> dict[str, Any]:
        config = self._config
        return {
            "num_partitions": config.int("transaction.state.log.num.partitions"),
            "replication_factor": config.int("transaction.state.log.replication.factor"),
            "configs": {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": config.int("transaction.state.log.min.isr"),
                "segment.bytes": config.int("transaction.state.log.segment.bytes"),
                "unclean.leader.election.enable": "false",
            },
        }

    async def _make(self, topic: dict[str, Any]) -> ErrorCode:
        name = topic["name"]
        if name in self._under_way:
            return ErrorCode.LEADER_NOT_AVAILABLE
        self._under_way[name] = None
        try:
            fields = {"topics": [{"assignments": [], "configs": [], **topic}], "timeout_ms": 0}
            answer = await self._controller.request(CREATE_TOPICS, CREATE_TOPICS_VERSION, fields, timeout_s=10.0)
        except (LinkError, CorruptData):
            return ErrorCode.LEADER_NOT_AVAILABLE
        finally:
            del self._under_way[name]
        code = ErrorCode(answer.topics[0].error_code)
        retriable = code in _UNDER_WAY or code is ErrorCode.NOT_CONTROLLER
        return ErrorCode.LEADER_NOT_AVAILABLE if retriable else code
