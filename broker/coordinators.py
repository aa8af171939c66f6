"""The two coordinators of a broker, of groups and of transactions, and their periodic work."""

import asyncio
from functools import partial

from logyard.broker import tasks
from logyard.broker.client.marker_links import BrokerMarkerLinks
from logyard.broker.client.peer_security import PeerSecurity
from logyard.broker.client.producer_ids import ProducerIds
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.features import TRANSACTION_VERSION
from logyard.broker.config.inter_broker_protocol import IBP_2_8_IV0
from logyard.broker.environment import Environment
from logyard.broker.groups import leadership as group_leadership
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.metadata.features import FinalizedFeatures
from logyard.broker.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logyard.broker.replication.replicas import Replicas
from logyard.broker.server.turns import Turns
from logyard.broker.transactions import leadership
from logyard.broker.transactions.markers.deleted import find_deleted
from logyard.broker.transactions.markers.writing import MarkerWriter, NearMarkers
from logyard.broker.znodes.ops import ZooKeeper

EXPIRE_OFFSETS_S = 600.0


class Coordinators:
    """See the head of this file. `start` begins the periodic work."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: Replicas,
        metadata: MetadataCache,
        producer_ids: ProducerIds,
        zk: ZooKeeper,
        features: FinalizedFeatures,
        security: PeerSecurity,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
        self.group_partitions = Partitioning(
            metadata, OFFSETS_TOPIC, lambda: config.int("offsets.topic.num.partitions")
        )
        self.groups = group_leadership.coordinator_for(
            config,
            replicas,
            metadata,
            self.group_partitions,
            environment.clock,
            environment.run_blocking,
            loop.call_later,
            environment.new_uuid,
        )
        self._marker_links = BrokerMarkerLinks(
            lambda broker_id: metadata.brokers.get(broker_id),
            config.inter_broker_listener,
            f"broker-{config.broker_id}-txn-marker-sender",
            config.int("request.timeout.ms") / 1000,
            version=1 if config.ibp >= IBP_2_8_IV0 else 0,
            security=security,
        )
        self.marker_writer = MarkerWriter(
            replicas,
            environment.clock,
            partial(config.int, "request.timeout.ms"),
            self.groups.commits.end_transaction,
            Turns().next,
        )
        self.transaction_partitions = Partitioning(
            metadata, TRANSACTIONS_TOPIC, lambda: config.int("transaction.state.log.num.partitions")
        )
        world = leadership.World(
            environment.clock,
            environment.run_blocking,
            loop,
            producer_ids,
            NearMarkers(config.broker_id, self.marker_writer, self._marker_links),
            partial(find_deleted, zk),
            lambda: features.levels.get(TRANSACTION_VERSION, 0),
        )
        self.transactions = leadership.coordinator_for(config, replicas, metadata, self.transaction_partitions, world)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin the periodic work."""
        timed_out_s = self._config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms") / 1000
        expired_s = self._config.int("transaction.remove.expired.transaction.cleanup.interval.ms") / 1000
        self._tasks = [
            tasks.every("expire offsets", EXPIRE_OFFSETS_S, self.groups.expire_offsets),
            tasks.every("abort timed-out transactions", timed_out_s, self.transactions.abort_timed_out),
            tasks.every("expire transactional ids", expired_s, self.transactions.expire_ids),
        ]

    async def close(self) -> None:
        """End it, and whatever else is under way."""
        for task in self._tasks:
            task.cancel()
        await self.groups.close()
        await self.transactions.close()
        self._marker_links.close()
