"""The parts of one broker, wired to each other over a `World`: what broker.py starts and stops."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

import structlog
from starlette.applications import Starlette

from logyard.broker import tasks
from logyard.broker.cleaner.service import CleaningService
from logyard.broker.client.alter_partition import AlterPartitionSender
from logyard.broker.client.controller_link import ToController
from logyard.broker.client.controller_requests import ControllerChannel
from logyard.broker.client.fetch_link import ReplicaFetchLink
from logyard.broker.client.peers import ControllerPeers
from logyard.broker.client.producer_ids import ProducerIds
from logyard.broker.config.broker import BrokerConfig, topic_config
from logyard.broker.config.inter_broker_protocol import IBP_2_7_IV2, IBP_3_0_IV0
from logyard.broker.config.stored_overrides import readable
from logyard.broker.config.topic import TopicConfig
from logyard.broker.controller.policies import NO_POLICIES, Policies
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.controller.settings import settings_from
from logyard.broker.coordinator.leadership import coordinator_for
from logyard.broker.environment import World
from logyard.broker.http.service import HttpService
from logyard.broker.leases import restart
from logyard.broker.leases.leases import LeasePorts
from logyard.broker.log import settings as log_settings
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.store import LogStore
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication import settings as replication_settings
from logyard.broker.replication.fetch.sessions import FetchSessions
from logyard.broker.replication.follower.fetcher_manager import ReplicaFetchers
from logyard.broker.replication.log_dir_moves import LogDirMoves
from logyard.broker.replication.ports import FetchLink
from logyard.broker.replication.replicas import Replicas
from logyard.broker.security import quota_settings
from logyard.broker.security.quotas import quotas_from
from logyard.broker.server.api_table import APIS, VERSIONS
from logyard.broker.server.auto_creation import AutoCreate
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.services import Services
from logyard.broker.server.topic_waits import TopicWaits
from logyard.broker.zk.config_watcher import ConfigWatcher
from logyard.broker.zk.isr_writer import DirectIsrWriter
from logyard.broker.zk.producer_id_blocks import ZooKeeperBlocks
from logyard.broker.znodes import log_dir_events
from logyard.broker.znodes.ops import Create, SessionExpired

EXPIRE_OFFSETS_S = 600.0

log = structlog.get_logger("logyard.broker")


async def read_identity(config: BrokerConfig, world: World) -> DirectoryIdentity | None:
    """Whose the log directories are, as their meta.properties say; None where they are new."""
    store = LogStore(
        log_settings.settings_from(config, world.open_files_max),
        world.disk,
        world.clock,
        world.run_blocking,
        topic_config=lambda _: TopicConfig(),
    )
    try:
        return await store.open()
    finally:
        await store.close()


class Node:
    """One broker's parts. `load` reads the logs, `registered` tells the broker epoch, `start` begins to work."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        zk: Any,
        cluster_id: str,
        fail: Any,
        policies: Policies = NO_POLICIES,
    ) -> None:
        self.config = config
        self._policies = policies
        self.running = False
        self.broker_epoch = -1
        self._world = world
        self._zk = zk
        self._fail = fail
        self._info: BrokerInfo | None = None
        self._expiry: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        broker_id = config.broker_id
        self.metadata = MetadataCache()
        self.configs = DynamicConfigs(broker_id, lambda overrides: topic_config(config.topic_defaults(), overrides))
        self.store = self._log_store()
        self.to_controller = ToController(
            lambda: self.metadata.brokers.get(self.metadata.controller_id),
            config.inter_broker_listener,
            f"broker-{broker_id}",
            config.int("controller.socket.timeout.ms") / 1000,
        )
        self.isr_changes = self._isr_changes(zk)
        self.replicas, self.fetchers = self._replication(loop)
        self.log_dir_moves = LogDirMoves(
            self.replicas.hosted, self.store, self._spawn, asyncio.sleep, lambda text: log.info("logs", note=text)
        )
        self.replicas.add_listener(self.log_dir_moves)
        self.groups = coordinator_for(
            config, self.replicas, self.metadata, world.clock, world.run_blocking, loop.call_later, world.new_uuid
        )
        self.peers = ControllerPeers(config.inter_broker_listener, f"controller-{broker_id}")
        self.controller = self._controller(zk)
        self.channel = ControllerChannel(self.to_controller, broker_id, lambda: self.broker_epoch, config.ibp)
        self.producer_ids = self._producer_ids(zk)
        self._watcher = ConfigWatcher(zk, self._config_changed, lambda note: log.warning("config", note=note))
        self.configs.on_topics(self.replicas.topic_configs_changed)
        if world.admission is not None:
            world.admission.ip_quotas = self.configs.ip_quotas
        if world.answers is not None:
            self.replicas.hosted.loading = world.answers.loading
        self.services = self._services(zk, cluster_id)
        self.dispatcher = Dispatcher(self.services, APIS.values())
        self.http = self._http_side(loop)
        self.store.on_cut = self.http.lease_service.leases.log_truncated
        self.cleaning = self._cleaning(zk)

    def _log_store(self) -> LogStore:
        world = self._world
        return LogStore(
            log_settings.settings_from(self.config, world.open_files_max),
            world.disk,
            world.clock,
            world.run_blocking,
            topic_config=self.configs.topic_config,
            new_uuid=world.new_uuid,
            note=lambda text: log.info("logs", note=text),
            on_offline=self._log_dir_failed,
        )

    def _controller(self, zk: Any) -> ControllerRunner:
        return ControllerRunner(
            zk,
            self.peers,
            self._world.clock,
            settings_from(self.config, self._policies),
            chance=self._world.chance,
            inter_broker_listener=self.config.inter_broker_listener,
            epoch_seen=lambda: self.replicas.controller_epoch,
        )

    def _producer_ids(self, zk: Any) -> ProducerIds:
        """Blocks come from the controller; below 3.0 every broker takes its own (KIP-730)."""
        if self.config.ibp >= IBP_3_0_IV0:
            return ProducerIds(self.channel.allocate_producer_ids)
        return ProducerIds(ZooKeeperBlocks(zk, self.config.broker_id, self._world.clock.now_ms).allocate)

    def _isr_changes(self, zk: Any) -> AlterPartitionSender | DirectIsrWriter:
        """How leaders change their ISR: by the controller, below 2.7-IV2 by writing the state znode (facts §22)."""
        if self.config.ibp >= IBP_2_7_IV2:
            return AlterPartitionSender(self.to_controller, self.config.broker_id, lambda: self.broker_epoch)
        return DirectIsrWriter(zk, self.config.broker_id)

    def _replication(self, loop: asyncio.AbstractEventLoop) -> tuple[Replicas, ReplicaFetchers]:
        config, world = self.config, self._world
        replicas = Replicas(
            replication_settings.settings_from(config),
            logs=self.store,
            metadata=self.metadata,
            topic_config=self.configs.topic_config,
            isr_changes=self.isr_changes,
            clock=world.clock,
            timers=loop,
            new_pending=loop.create_future,
            run_blocking=world.run_blocking,
            run_opening=world.run_opening,
            broker_epoch=lambda: self.broker_epoch,
        )
        fetchers = ReplicaFetchers(
            self._fetch_link,
            replicas.settings,
            replicas.counters,
            replicas.hosted.now_ms,
            lambda: self.broker_epoch,
            replicas.hosted.watermark_moved,
            loop,
        )
        replicas.use_fetchers(fetchers)
        return replicas, fetchers

    def _services(self, zk: Any, cluster_id: str) -> Services:
        config, world = self.config, self._world
        return Services(
            config=config,
            clock=world.clock,
            cluster_id=cluster_id,
            zk=zk,
            metadata=self.metadata,
            configs=self.configs,
            replicas=self.replicas,
            store=self.store,
            fetch_sessions=FetchSessions(self.replicas.hosted, world.new_session_id),
            groups=self.groups,
            controller=self.controller,
            producer_ids=self.producer_ids,
            auto_create=AutoCreate(config, self.metadata, self.to_controller),
            topic_waits=TopicWaits(self.metadata),
            log_dir_moves=self.log_dir_moves,
            alter_config_policy=self._policies.alter_config,
            api_versions=VERSIONS,
            quotas=quotas_from(config, self.configs, lambda: world.clock.monotonic() * 1000),
            fetch_bytes_max=config.int("fetch.max.bytes"),
        )

    def _http_side(self, loop: asyncio.AbstractEventLoop) -> HttpService:
        world = self._world
        return HttpService(
            LeasePorts(
                store=self.store,
                replicas=self.replicas,
                metadata=self.metadata,
                disk=world.disk,
                clock=world.clock,
                timers=loop,
                run_blocking=world.run_blocking,
                new_id=lambda: world.new_uuid().hex,
            ),
            broker_id=self.config.broker_id,
            cluster_id=self.services.cluster_id,
            controller_gauges=self.controller.gauges,
            apis=self.dispatcher.counters,
            health=self.health,
            other_gauges=self._gauges,
        )

    def _gauges(self) -> dict[str, int]:
        answers = {} if self._world.answers is None else self._world.answers.gauges()
        return answers | ({} if self.cleaning is None else self.cleaning.gauges())

    def _cleaning(self, zk: Any) -> CleaningService | None:
        world = self._world
        if world.open_cleaner is None:
            return None
        side = CleaningService(
            self.config,
            store=self.store,
            lease_service=self.http.lease_service,
            metadata=self.metadata,
            zk=zk,
            clock=world.clock,
            run_blocking=world.run_blocking,
            open_worker=world.open_cleaner,
        )
        self.replicas.add_listener(side.catch_up)
        return side

    def http_app(self) -> Starlette:
        """What the HTTP side serves: /health, /metrics, and behind the token /leases and /partitions."""
        return self.http.app(self.config.optional_str("http.token.file"), self.config.log_dirs[0])

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests are served, and what a machine that watches wants to know."""
        return self.running, {
            "status": "ready" if self.running else "not ready",
            "broker_id": self.config.broker_id,
            "cluster_id": self.services.cluster_id,
            "broker_epoch": self.broker_epoch,
            "controller_id": self.metadata.controller_id,
            "log_dirs": {path: path in self.store.online_directories for path in self.store.log_dirs},
        }

    def _fetch_link(self, leader: int) -> FetchLink:
        return ReplicaFetchLink(
            leader,
            self.metadata.brokers.get,
            self.config.inter_broker_listener,
            self.config.broker_id,
            self.config.int("replica.socket.timeout.ms") / 1000,
        )

    # Life

    async def load(self) -> None:
        """Whose directories these are, dynamic settings (logs are opened with them), then every log."""
        identity = await self.store.open()
        if identity is not None:
            identity.check(self.services.cluster_id, self.config.broker_id)
        await self.store.claim(self.config.broker_id, self.services.cluster_id)
        await self._watcher.start()
        await self.store.load()
        await restart.restore(self.http.lease_service.leases)

    def registered(self, info: BrokerInfo, epoch: int) -> None:
        """This broker is in ZooKeeper, as `info`, under that epoch."""
        self._info, self.broker_epoch = info, epoch

    async def start(self) -> None:
        """Begin the periodic work and stand for controller."""
        with suppress(SessionExpired):  # `session_restored` follows
            await self._watcher.renew()  # nobody heard of a session that ended while the logs were loaded
        self.store.start()
        self.replicas.start()
        self._expiry = tasks.every("expire offsets", EXPIRE_OFFSETS_S, self.groups.expire_offsets)
        await self.controller.start()
        self.http.start()
        if self.cleaning is not None:
            self.cleaning.start()
        self.running = True

    async def session_restored(self) -> None:
        """A new ZooKeeper session, registered again."""
        await self._watcher.start()
        self.controller.on_session_established()

    async def hand_over(self) -> None:
        """Controlled shutdown, where it is enabled (facts §8)."""
        if not self.config.bool("controlled.shutdown.enable"):
            return
        done = await self.channel.controlled_shutdown(
            self.config.int("controlled.shutdown.max.retries"),
            self.config.int("controlled.shutdown.retry.backoff.ms"),
        )
        log.info("controlled shutdown", done=done)

    async def close(self) -> None:
        """Stop everything and leave the logs flushed and marked clean."""
        self.running = False
        if self._expiry is not None:
            self._expiry.cancel()
        if self.cleaning is not None:
            await self.cleaning.close()
        await self.http.close()
        await self.controller.stop()
        await self._watcher.stop()
        self.log_dir_moves.close()
        await self.fetchers.close()
        self.replicas.close()
        await self.groups.close()
        self.isr_changes.close()
        self.producer_ids.close()
        self.to_controller.close()
        self.peers.close()
        await self.store.close()

    # What others tell

    def _config_changed(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        if kind == "topics":
            before = self.configs.topic_config(name).unclean_leader_election_enable
            self.configs.set_topic(name, settings)
            if self.configs.topic_config(name).unclean_leader_election_enable and not before:
                self.controller.on_topic_unclean_election_enabled(name)
        elif kind == "brokers":
            self.configs.set_broker(name, settings)
            self._broker_settings_changed()
        else:
            quota_settings.changed(self.configs, kind, name, settings)

    def _broker_settings_changed(self) -> None:
        """Take over what may change while a broker runs (facts §20); raises ConfigProblems for what cannot be read."""
        own, every = (
            readable(self.configs.entity_overrides(entity), lambda text: log.warning("config", note=text))
            for entity in (str(self.config.broker_id), DEFAULT_ENTITY)
        )
        effective = self.config.with_dynamic(own, every)
        defaults = effective.topic_defaults()
        self.configs.set_build(lambda overrides: topic_config(defaults, overrides))
        self.controller.update_settings(settings_from(effective, self._policies))
        if self.cleaning is not None:
            self.cleaning.configure(effective)
        self.replicas.settings.take_over(effective)
        self.store.producer_id_expiration_ms = effective.int("producer.id.expiration.ms")
        if self._world.admission is not None:
            self._world.admission.take_over(effective)

    def _log_dir_failed(self, path: str, partitions: list[TopicPartition]) -> None:
        log.error("log directory offline", path=path, replicas=len(partitions))
        self.replicas.log_dir_failed(partitions)
        if not self.store.online_directories:
            self._fail("every log directory has failed")
        elif self.running:
            self._spawn(self._tell_log_dir_failed())

    async def _tell_log_dir_failed(self) -> None:
        """The controller hears of it by a znode, asks again for our replicas, learns which are offline (facts §9)."""
        event = Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(self.config.broker_id), sequential=True)
        try:
            await self._zk.multi([event])
        except SessionExpired:
            log.warning("the new session will tell the controller of the offline directory")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        tasks.spawn("node", work)
