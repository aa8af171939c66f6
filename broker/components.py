"""The components of one broker, wired to each other over an `Environment`: what broker.py starts and stops."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.cleaner.service import CleaningService
from logyard.broker.client.alter_partition import AlterPartitionSender
from logyard.broker.client.broker_links import BrokerLinks
from logyard.broker.client.peer_security import peer_securities
from logyard.broker.client.producer_ids import ProducerIds
from logyard.broker.config.broker import BrokerConfig, topic_config
from logyard.broker.config.inter_broker_protocol import IBP_2_7_IV2, IBP_3_0_IV0
from logyard.broker.controller.policies import NO_POLICIES, Policies
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.controller.settings import settings_from
from logyard.broker.coordinators import Coordinators
from logyard.broker.environment import Environment
from logyard.broker.http.service import HttpService
from logyard.broker.http_gate import login_at_others
from logyard.broker.leases import restart
from logyard.broker.leases.service import LeaseService
from logyard.broker.log import settings as log_settings
from logyard.broker.log.store import LogStore
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.metadata.features import FinalizedFeatures
from logyard.broker.model import TopicPartition
from logyard.broker.replication import settings as replication_settings
from logyard.broker.replication.fetch.sessions import FetchSessions
from logyard.broker.replication.follower.fetcher_manager import ReplicaFetchers
from logyard.broker.replication.log_dir_moves import LogDirMoves
from logyard.broker.replication.replicas import Replicas
from logyard.broker.security.delegation_tokens import DelegationTokens, TokenSettings
from logyard.broker.security.quotas import quotas_from
from logyard.broker.server.api_table import APIS, VERSIONS
from logyard.broker.server.authorizer import authorization_from
from logyard.broker.server.auto_creation import AutoCreate
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.services import Services
from logyard.broker.server.topic_waits import TopicWaits
from logyard.broker.settings_changes import SettingsChanges
from logyard.broker.tls.listeners import TlsListeners
from logyard.broker.tls.updates import TlsUpdates
from logyard.broker.transactions.verification import Here, Questions, Verification
from logyard.broker.transactions.verification_figures import VerificationFigures
from logyard.broker.zk.config_watcher import ConfigWatcher
from logyard.broker.zk.feature_watcher import FeatureWatcher
from logyard.broker.zk.isr_writer import DirectIsrWriter
from logyard.broker.zk.log_dir_news import LogDirNews
from logyard.broker.zk.producer_id_blocks import ZooKeeperBlocks
from logyard.broker.zk.session_watches import SessionWatches
from logyard.broker.zk.token_watcher import TokenWatcher
from logyard.broker.znodes.ops import SessionExpired

log = structlog.get_logger("logyard.broker")


class Components:
    """One broker's components. `load` reads the logs, `registered` tells the broker epoch, `start` begins to work."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        zk: Any,
        cluster_id: str,
        fail: Any,
        policies: Policies = NO_POLICIES,
    ) -> None:
        self.config = config
        self._policies = policies
        self.running = False
        self.broker_epoch = -1
        self._environment = environment
        self._zk = zk
        self._fail = fail
        loop = asyncio.get_running_loop()
        broker_id = config.broker_id
        self.metadata = MetadataCache()
        self.features = FinalizedFeatures()
        self.configs = DynamicConfigs(broker_id, lambda overrides: topic_config(config.topic_defaults(), overrides))
        self.store = self._log_store()
        self.tls = TlsListeners(environment.handshakes)
        self.tls_updates = TlsUpdates(config, self.tls, environment.run_blocking)
        run_login_work = environment.run_login_work or environment.run_blocking
        run_peer_login_work = environment.run_peer_login_work or environment.run_blocking
        now_ms = environment.clock.now_ms
        self.security, control_security = peer_securities(config, self.tls, run_peer_login_work, now_ms)
        self.tokens = DelegationTokens(TokenSettings.of(config), zk, environment.clock.now_ms, run_login_work)
        self.links = BrokerLinks(config, self.metadata, self.security, control_security)
        self.isr_changes = self._isr_changes(zk)
        self.replicas, self.fetchers = self._replication(loop)
        self.log_dir_news = LogDirNews(zk, broker_id)
        self.replicas.requests.missing_logs.opened = self.log_dir_news.tell
        self.log_dir_moves = self._log_dir_moves()
        self.controller = self._controller(zk)
        self.channel = self.links.controller_channel(lambda: self.broker_epoch)
        self.producer_ids = ids = self._producer_ids(zk)
        self.coordinators = Coordinators(
            config, environment, self.replicas, self.metadata, ids, zk, self.features, self.security
        )
        self.configs.on_topics(self.replicas.topic_configs_changed)
        if environment.admission is not None:
            environment.admission.ip_quotas = self.configs.ip_quotas
        if environment.answers is not None:
            self.replicas.hosted.loading = environment.answers.loading
        open_own = environment.open_acl_zookeeper
        self.authorization = authorization_from(config, zk, environment.chance.below, open_own, environment.log_levels)
        self.services = self._services(zk, cluster_id)
        self.dispatcher = Dispatcher(self.services, APIS.values())
        self.lease_service = self._new_lease_service(loop)
        self.http = self._http()
        self.cleaning = self._cleaning(zk)
        self.watches = self._session_watches(zk)

    def _log_store(self) -> LogStore:
        environment = self._environment
        return LogStore(
            log_settings.settings_from(self.config, environment.open_files_max),
            environment.disk,
            environment.clock,
            environment.run_blocking,
            topic_config=self.configs.topic_config,
            new_uuid=environment.new_uuid,
            note=lambda text: log.info("logs", note=text),
            on_offline=self._log_dir_failed,
        )

    def _controller(self, zk: Any) -> ControllerRunner:
        return ControllerRunner(
            zk,
            self.links.peers,
            self._environment.clock,
            settings_from(self.config, self._policies),
            chance=self._environment.chance,
            inter_broker_listener=self.config.inter_broker_listener,
            epoch_seen=lambda: self.replicas.controller_epoch,
        )

    def _producer_ids(self, zk: Any) -> ProducerIds:
        """Blocks of ids come from the controller; below 3.0 each broker takes them from ZooKeeper (KIP-730)."""
        if self.config.ibp >= IBP_3_0_IV0:
            return ProducerIds(self.channel.allocate_producer_ids)
        return ProducerIds(ZooKeeperBlocks(zk, self.config.broker_id, self._environment.clock.now_ms).allocate)

    def _isr_changes(self, zk: Any) -> AlterPartitionSender | DirectIsrWriter:
        """Leaders change their ISR through the controller, below 2.7-IV2 by writing the state znode (facts §22)."""
        if self.config.ibp >= IBP_2_7_IV2:
            return AlterPartitionSender(
                self.links.control_to_controller, self.config.broker_id, lambda: self.broker_epoch
            )
        return DirectIsrWriter(zk, self.config.broker_id)

    def _replication(self, loop: asyncio.AbstractEventLoop) -> tuple[Replicas, ReplicaFetchers]:
        config, environment = self.config, self._environment
        replicas = Replicas(
            replication_settings.settings_from(config),
            logs=self.store.logs,
            metadata=self.metadata,
            topic_config=self.configs.topic_config,
            isr_changes=self.isr_changes,
            clock=environment.clock,
            timers=loop,
            new_pending=loop.create_future,
            run_blocking=environment.run_blocking,
            run_record_work=environment.run_record_work,
            broker_epoch=lambda: self.broker_epoch,
        )
        fetchers = ReplicaFetchers(
            self.links.fetch_link,
            replicas.settings,
            replicas.counters,
            replicas.hosted.now_ms,
            lambda: self.broker_epoch,
            replicas.hosted.watermark_moved,
            loop,
        )
        replicas.use_fetchers(fetchers)
        return replicas, fetchers

    def _log_dir_moves(self) -> LogDirMoves:
        moves = LogDirMoves(
            self.replicas.hosted,
            self.store.logs,
            self.store,
            self._spawn,
            asyncio.sleep,
            lambda text: log.info("logs", note=text),
        )
        self.replicas.requests.add_listener(moves)
        return moves

    def _services(self, zk: Any, cluster_id: str) -> Services:
        config, environment = self.config, self._environment
        return Services(
            config=config,
            clock=environment.clock,
            cluster_id=cluster_id,
            zk=zk,
            metadata=self.metadata,
            features=self.features,
            configs=self.configs,
            replicas=self.replicas,
            store=self.store,
            fetch_sessions=FetchSessions(self.replicas.hosted, environment.new_session_id),
            groups=self.coordinators.groups,
            transactions=self.coordinators.transactions,
            marker_writer=self.coordinators.marker_writer,
            group_partitions=self.coordinators.group_partitions,
            transaction_partitions=self.coordinators.transaction_partitions,
            controller=self.controller,
            producer_ids=self.producer_ids,
            verification=self._verification(),
            auto_create=AutoCreate(config, self.metadata, self.links.to_controller),
            topic_waits=TopicWaits(self.metadata),
            log_dir_moves=self.log_dir_moves,
            alter_config_policy=self._policies.alter_config,
            api_versions=VERSIONS,
            tokens=self.tokens,
            quotas=quotas_from(config, self.configs, lambda: environment.clock.monotonic() * 1000),
            fetch_bytes_max=config.int("fetch.max.bytes"),
            rights=self.authorization.rights,
            acls=self.authorization.acls,
            tls=self.tls_updates,
            log_levels=environment.log_levels,
        )

    def _verification(self) -> Verification:
        self.verification_figures = VerificationFigures(self._environment.clock.monotonic)
        questions = Questions(
            self.coordinators.transaction_partitions.coordinator_of,
            self.links.verification_requests,
            asyncio.get_running_loop().create_future,
            self.verification_figures,
            Here(self.config.broker_id, self.coordinators.transactions),
        )
        return Verification(self.replicas.producing, questions, self.store.logs.verification, asyncio.sleep)

    def _new_lease_service(self, loop: asyncio.AbstractEventLoop) -> LeaseService:
        ports = self._environment.lease_ports(self.store, self.replicas, self.metadata, loop)
        return LeaseService(ports, self.config.broker_id, self.services.cluster_id)

    def gauges(self) -> dict[str, int]:
        environment = self._environment
        answers = {} if environment.answers is None else environment.answers.gauges()
        shakes = {} if environment.handshakes is None else environment.handshakes.gauges()
        logins = self.services.login_counters.gauges()
        return answers | shakes | logins | ({} if self.cleaning is None else self.cleaning.gauges())

    def _cleaning(self, zk: Any) -> CleaningService | None:
        environment = self._environment
        if environment.open_cleaner is None:
            return None
        service = CleaningService(
            self.config,
            store=self.store,
            lease_service=self.lease_service,
            metadata=self.metadata,
            zk=zk,
            clock=environment.clock,
            run_blocking=environment.run_blocking,
            open_worker=environment.open_cleaner,
        )
        service.http_login = login_at_others(self.config, self.tls)
        self.replicas.requests.add_listener(service.catch_up)
        return service

    def _http(self) -> HttpService:
        return HttpService(
            self.lease_service,
            controller_gauges=self.controller.gauges,
            apis=self.dispatcher.counters,
            health=self.health,
            other_gauges=self.gauges,
            verification=self.verification_figures,
        )

    def _session_watches(self, zk: Any) -> SessionWatches:
        self._changes = SettingsChanges(
            self._policies,
            configs=self.configs,
            controller=self.controller,
            replicas=self.replicas,
            store=self.store,
            cleaning=self.cleaning,
            admission=self._environment.admission,
            tls=self.tls_updates,
        )
        return SessionWatches(
            *self.authorization.watches,
            ConfigWatcher(zk, self._changes.take, lambda note: log.warning("config", note=note)),
            FeatureWatcher(zk, self.features, lambda note: log.error("features", note=note)),
            *([TokenWatcher(zk, self.tokens, lambda note: log.warning("tokens", note=note))] * self.tokens.is_enabled),
        )

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether requests are served, and the details for monitoring."""
        return self.running, {
            "status": "ready" if self.running else "not ready",
            "broker_id": self.config.broker_id,
            "cluster_id": self.services.cluster_id,
            "broker_epoch": self.broker_epoch,
            "controller_id": self.metadata.controller_id,
            "log_dirs": {path: path in self.store.online_directories for path in self.store.log_dirs},
        }

    # Life

    async def load(self) -> None:
        """Check the log directories' identity, read the dynamic settings, open every log, restore the leases."""
        identity = await self.store.open()
        if identity is not None:
            identity.check(self.services.cluster_id, self.config.broker_id)
        await self.store.claim(self.config.broker_id, self.services.cluster_id)
        await self.watches.start()
        self.tls_updates.open(self._changes.effective())
        await self.store.load()
        await restart.restore(self.lease_service.leases)

    def registered(self, epoch: int) -> None:
        """Note the epoch under which this broker is registered in ZooKeeper."""
        self.broker_epoch = epoch

    async def start(self) -> None:
        """Begin the periodic work, and try to become controller."""
        with suppress(SessionExpired):  # `NewSessions` follows
            await self.watches.renew()  # a session may have ended while the logs were loaded
        self.store.start()
        self.replicas.start()
        self.coordinators.start()
        await self.controller.start()
        self.lease_service.leases.start()
        if self.cleaning is not None:
            self.cleaning.start()
        interval_s = self.config.int("delegation.token.expiry.check.interval.ms") / 1000
        self.tokens.start(interval_s, lambda: self.controller.is_active)
        self.running = True

    async def hand_over(self) -> None:
        """Hand leadership to other brokers (controlled shutdown), if it is enabled (facts §8)."""
        self.coordinators.transactions.write_ends()
        if not self.config.bool("controlled.shutdown.enable"):
            return
        done = await self.channel.controlled_shutdown(
            self.config.int("controlled.shutdown.max.retries"),
            self.config.int("controlled.shutdown.retry.backoff.ms"),
        )
        log.info("controlled shutdown", done=done)

    def stop_waiting(self) -> None:
        """Answer the requests that wait for records, acknowledgements or members, so that connections can close."""
        self.replicas.hosted.stop_waiting()
        self.coordinators.groups.stop_waiting()
        self.links.verification_requests.close()

    async def close(self) -> None:
        """Stop everything and leave the logs flushed and marked clean."""
        self.running = False
        if self.cleaning is not None:
            await self.cleaning.close()
        self.http.close()
        await self.lease_service.leases.close()
        await self.controller.stop()
        await self.watches.stop()
        self.log_dir_moves.close()
        self.tokens.close()
        await self.fetchers.close()
        self.replicas.close()
        await self.coordinators.close()
        self.isr_changes.close()
        self.log_dir_news.close()
        self.producer_ids.close()
        self.links.close()
        await self.store.close()

    # Callbacks

    def _log_dir_failed(self, path: str, partitions: list[TopicPartition]) -> None:
        log.error("log directory offline", path=path, replicas=len(partitions))
        self.replicas.requests.take_offline(partitions)
        if not self.store.online_directories:
            self._fail("every log directory has failed")
        elif self.running:
            self.log_dir_news.tell()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        tasks.spawn("node", work)
