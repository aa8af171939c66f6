"""Creates topics at their first use: unknown ones that Metadata names, and internal ones when needed (facts §14).

It sends CreateTopics to the controller, as an admin client does, and returns the errors that clients get until the
topics have leaders. Nobody waits for a controller that is silent: a client asks for other topics in the same request.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from logyard.broker import tasks
from logyard.broker.client.controller_link import ToController
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logyard.broker.replication.ports import LinkError

CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 5
# How long a client waits for what the controller says. The request to it goes on behind.
WAIT_S = 1.0

# The topic exists or is being created: the client should ask again.
_CREATED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)


class AutoCreate:
    """Creates topics for clients; it has one request for a topic in flight at a time."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache, controller: ToController) -> None:
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._in_flight: dict[str, None] = {}

    async def create(self, names: Collection[str]) -> dict[str, ErrorCode]:
        """Create ordinary topics with the controller's defaults.

        Returns for each LEADER_NOT_AVAILABLE if it is being created, or the controller is not there or has not answered
        within WAIT_S, else the controller's error.
        """
        return await self._make([{"name": name, "num_partitions": -1, "replication_factor": -1} for name in names])

    async def create_internal(self, name: str) -> ErrorCode:
        """Create an internal topic with its settings.

        Returns as `create` does; also INVALID_REPLICATION_FACTOR (fewer live brokers than replicas) and
        UNKNOWN_TOPIC_OR_PARTITION (the topic is not internal).
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
        return (await self._make([{**topic, "name": name, "configs": configs}]))[name]

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

    async def _make(self, topics: Sequence[dict[str, Any]]) -> dict[str, ErrorCode]:
        # A client may name one twice, by two ids: what is asked for is asked for once.
        named = {topic["name"]: topic for topic in topics}
        codes = dict.fromkeys(named, ErrorCode.LEADER_NOT_AVAILABLE)
        fresh = [topic for name, topic in named.items() if name not in self._in_flight]
        if fresh:
            self._in_flight.update(dict.fromkeys(topic["name"] for topic in fresh))
            asking = tasks.spawn("create topics at their first use", self._ask(fresh))
            await asyncio.wait([asking], timeout=WAIT_S)
            if asking.done() and not asking.cancelled() and asking.exception() is None:
                codes |= asking.result()
        return codes

    async def _ask(self, topics: Sequence[dict[str, Any]]) -> dict[str, ErrorCode]:
        """Return what clients are told of each topic that the controller answers for."""
        try:
            fields = {"topics": [{"assignments": [], "configs": [], **topic} for topic in topics], "timeout_ms": 0}
            answer = await self._controller.request(CREATE_TOPICS, CREATE_TOPICS_VERSION, fields, timeout_s=10.0)
        except (LinkError, CorruptData):
            return {}
        finally:
            for topic in topics:
                del self._in_flight[topic["name"]]
        return {topic.name: _told(ErrorCode(topic.error_code)) for topic in answer.topics}


def _told(code: ErrorCode) -> ErrorCode:
    retriable = code in _CREATED or code is ErrorCode.NOT_CONTROLLER
    return ErrorCode.LEADER_NOT_AVAILABLE if retriable else code
