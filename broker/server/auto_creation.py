"""Topics made by use: unknown ones named in Metadata, and the internal ones when first needed (facts §14).

The controller is asked as any admin client would ask it; the answer is the error clients get until the topic is led.
"""

from typing import Any

from logyard.broker.client.controller_link import ToController
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import OFFSETS_TOPIC
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
        """Make `__consumer_offsets`; INVALID_REPLICATION_FACTOR while too few brokers live for its replicas."""
        if name != OFFSETS_TOPIC:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        replication_factor = self._config.int("offsets.topic.replication.factor")
        if len(self._metadata.brokers) < replication_factor:
            return ErrorCode.INVALID_REPLICATION_FACTOR
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._config.int("offsets.topic.segment.bytes")),
        }
        return await self._make(
            {
                "name": name,
                "num_partitions": self._config.int("offsets.topic.num.partitions"),
                "replication_factor": replication_factor,
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
        )

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
