"""The broker's parts that handlers use, in one object that components.py makes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from logyard.broker.client.producer_ids import ProducerIds
from logyard.broker.clock import Clock
from logyard.broker.config.broker import DEFAULT_ENTITY, BrokerConfig
from logyard.broker.config.entries import ConfigEntry, ConfigSource
from logyard.broker.config.stored_overrides import readable
from logyard.broker.controller.policies import ConfigRequest
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.errors import ErrorCode, LogyardError
from logyard.broker.groups.runner import GroupCoordinator
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.space import UNKNOWN
from logyard.broker.log.store import LogStore
from logyard.broker.log_levels import LogLevels
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.metadata.features import FinalizedFeatures
from logyard.broker.portions import portions
from logyard.broker.replication.events import LogDirInfo, ReplicaLogInfo
from logyard.broker.replication.fetch.sessions import FetchSessions
from logyard.broker.replication.log_dir_moves import LogDirMoves
from logyard.broker.replication.replicas import Replicas
from logyard.broker.security.acls.store import AclStore
from logyard.broker.security.delegation_tokens import DelegationTokens
from logyard.broker.security.quotas import Quotas
from logyard.broker.server.answer_cache import AnswerCache
from logyard.broker.server.auto_creation import AutoCreate
from logyard.broker.server.controller_orders import ControllerOrders
from logyard.broker.server.large_requests import LargeRequests
from logyard.broker.server.logins.failures import LoginCounters
from logyard.broker.server.rights import EverythingAllowed, Rights
from logyard.broker.server.topic_waits import TopicWaits
from logyard.broker.server.turns import Turns
from logyard.broker.tls.updates import TlsUpdates
from logyard.broker.transactions.markers.writing import MarkerWriter
from logyard.broker.transactions.runner import TransactionCoordinator
from logyard.broker.transactions.verification import Verification
from logyard.broker.znodes import configs
from logyard.broker.znodes.ops import SessionExpired, ZooKeeper
from logyard.broker.znodes.reading import read_each

LOGS_PER_TURN = 10_000

log = structlog.get_logger("logyard.services")


@dataclass(slots=True)
class Services:
    """The broker's parts that handlers use."""

    config: BrokerConfig
    clock: Clock
    cluster_id: str
    zk: ZooKeeper
    metadata: MetadataCache
    features: FinalizedFeatures
    configs: DynamicConfigs
    replicas: Replicas
    store: LogStore
    fetch_sessions: FetchSessions
    groups: GroupCoordinator
    controller: ControllerRunner
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    marker_writer: MarkerWriter
    group_partitions: Partitioning
    transaction_partitions: Partitioning
    verification: Verification
    auto_create: AutoCreate
    topic_waits: TopicWaits
    log_dir_moves: LogDirMoves
    quotas: Quotas
    tokens: DelegationTokens
    api_versions: Mapping[int, tuple[int, int]]
    """Lowest and highest version by API key."""
    alter_config_policy: Callable[[ConfigRequest], None] | None = None
    rights: Rights = field(default_factory=EverythingAllowed)
    acls: AclStore | None = None
    """None: no authorizer is configured."""
    fetch_bytes_max: int = 57_671_680
    login_counters: LoginCounters = field(default_factory=LoginCounters)
    http_address: str | None = None
    metadata_answers: AnswerCache = field(default_factory=AnswerCache)
    turns: Turns = field(default_factory=Turns)
    large_requests: LargeRequests = field(default_factory=LargeRequests)
    orders: ControllerOrders = field(default_factory=ControllerOrders)
    tls: TlsUpdates | None = None
    log_levels: LogLevels = field(default_factory=LogLevels)

    @property
    def broker_id(self) -> int:
        return self.config.broker_id

    async def refresh_topic_overrides(self, topics: Iterable[str]) -> None:
        """Read these topics' overrides from ZooKeeper and apply them, in portions."""
        async for portion in portions(topics):
            self.configs.set_topics(await self.read_together(portion))

    async def read_topic_overrides(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return these topics' overrides, read from ZooKeeper in portions; the known ones where they cannot be read.

        They are not applied: that is done when the watch fires, so that all listeners are called.
        """
        found: dict[str, Mapping[str, str]] = {}
        async for portion in portions(topics):
            found |= await self.read_together(portion)
        return found

    async def read_together(self, topics: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Do what `read_topic_overrides` does, in one portion."""
        found = {topic: self.configs.topic_overrides(topic) for topic in topics}
        paths = [configs.topic_path(topic) for topic in topics]
        try:
            znodes = await read_each(self.zk, paths)
        except SessionExpired:
            return found
        for topic, path, znode in zip(topics, paths, znodes, strict=True):
            try:
                if isinstance(znode, LogyardError):
                    raise znode
                found[topic] = {} if znode is None else configs.decode(znode.data, path)
            except LogyardError as error:
                log.warning("cannot read a topic's settings, keeping the known ones", topic=topic, error=str(error))
        return found

    def describe_broker(self, *, cluster_wide: bool) -> list[ConfigEntry]:
        """Return this broker's current settings; with `cluster_wide` only the overrides that hold for all brokers.

        What is stored and cannot be read is left out, as it is where settings are applied. Raises ConfigProblems, where
        overrides contradict each other.
        """
        everyones = self.readable_overrides(DEFAULT_ENTITY)
        if cluster_wide:
            entries = self.config.with_dynamic({}, everyones).describe()
            shared = ConfigSource.DYNAMIC_DEFAULT_BROKER
            kept = [e for e in entries if e.source is shared]
            return [replace(e, synonyms=tuple(s for s in e.synonyms if s.source is shared)) for e in kept]
        entries = self.config.with_dynamic(self.readable_overrides(str(self.broker_id)), everyones).describe()
        if self.http_address is None:
            return entries
        return [replace(e, value=self.http_address) if e.name == "http.advertised.listener" else e for e in entries]

    def readable_overrides(self, entity: str) -> dict[str, str]:
        """Return the stored overrides of a broker, or of all, that can be read, with passwords as they are stored."""
        # Who applies them has logged the others.
        return readable(self.configs.entity_overrides(entity), note=lambda line: None, decode=lambda stored: stored)

    async def log_dirs(self, *, with_space: bool) -> list[LogDirInfo]:
        """Return the log directories with their replicas, and their disks' bytes if asked for."""
        online = [path for path in self.config.log_dirs if path in self.store.online_directories]
        spaces = await self.store.space.of(online) if with_space else {}
        lying: dict[str, list[PartitionLog]] = {path.rstrip("/"): [] for path in online}
        for number, each in enumerate(self.store.logs.everything(), start=1):
            if number % LOGS_PER_TURN == 0:
                await self.turns.next()
            lying.get(each.directory.rpartition("/")[0], []).append(each)
        return [
            LogDirInfo(path, ErrorCode.NONE, self._replicas(lying[path.rstrip("/")]), *spaces.get(path, UNKNOWN))
            if path in online
            else LogDirInfo(path, ErrorCode.KAFKA_STORAGE_ERROR)
            for path in self.config.log_dirs
        ]

    def _replicas(self, logs: Iterable[PartitionLog]) -> Iterator[ReplicaLogInfo]:
        """Describe logs one by one, as the caller asks; those that are gone by then are left out."""
        for each in logs:
            if each.failure is None:
                yield ReplicaLogInfo(each.tp, each.size, self._offset_lag(each), each.is_future)

    def _offset_lag(self, log: PartitionLog) -> int:
        """Return how many offsets a log is behind: a future log behind its log, another behind its high watermark.

        -1 if that is not known.
        """
        if not log.is_future:
            return max(0, log.high_watermark - log.log_end_offset)
        current = self.store.logs.get(log.tp)
        return -1 if current is None else max(0, current.log_end_offset - log.log_end_offset)
