"""The transaction coordinator of a broker, put together: rules, log, markers, and who leads the log."""

from collections.abc import Callable
from dataclasses import dataclass

from logyard.broker.clock import Clock
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.event_loop import SubmitBlocking, Timers
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.model import TRANSACTIONS_TOPIC, TopicPartition
from logyard.broker.replication.internal_log import InternalLog
from logyard.broker.replication.replicas import Replicas
from logyard.broker.transactions.markers.runner import MarkerSender
from logyard.broker.transactions.owned_transactions import OwnedTransactions
from logyard.broker.transactions.ports import FindDeleted, MarkerLinks, ProducerIds
from logyard.broker.transactions.runner import Rules, TransactionCoordinator
from logyard.broker.transactions.state_log import ReplicatedStates


@dataclass(frozen=True, slots=True)
class World:
    """What is outside: time, threads, producer ids, other brokers, ZooKeeper, the cluster's `transaction.version`."""

    clock: Clock
    run_blocking: SubmitBlocking
    timers: Timers
    producer_ids: ProducerIds
    marker_links: MarkerLinks
    find_deleted: FindDeleted
    version: Callable[[], int]


def coordinator_for(
    config: BrokerConfig, replicas: Replicas, metadata: MetadataCache, partitioning: Partitioning, world: World
) -> TransactionCoordinator:
    """Make the coordinator that keeps its ids in `__transaction_state`, and have it told of that topic's leaders."""
    owned = OwnedTransactions(partitioning)
    state_log = ReplicatedStates(
        InternalLog(replicas, world.run_blocking, TRANSACTIONS_TOPIC),
        world.clock,
        lambda: config.int("message.max.bytes"),
    )
    listener = config.inter_broker_listener
    markers = MarkerSender(world.marker_links, metadata, listener, world.timers, owned, world.find_deleted)
    rules = Rules(
        timeout_max_ms=config.int("transaction.max.timeout.ms"),
        expiration_ms=config.int("transactional.id.expiration.ms"),
        request_timeout_ms=config.int("request.timeout.ms"),
    )
    coordinator = TransactionCoordinator(
        owned, state_log, markers, world.producer_ids, world.clock, world.timers, rules, world.version
    )
    replicas.requests.add_listener(StateLeadership(coordinator))
    return coordinator


class StateLeadership:
    """Tells the transaction coordinator which partitions of `__transaction_state` this broker leads."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        if tp.topic == TRANSACTIONS_TOPIC:
            self._coordinator.on_leader(tp.partition, leader_epoch)

    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        if tp.topic == TRANSACTIONS_TOPIC:
            self._coordinator.on_follower(tp.partition)

    def on_deleted(self, tp: TopicPartition) -> None:
        if tp.topic == TRANSACTIONS_TOPIC:
            self._coordinator.on_follower(tp.partition)
