"""Starts and stops one broker; the only module that makes the real clock, disk, ZooKeeper session and sockets.

Start (facts §2): connect to ZooKeeper, get the cluster id, check the identity of the log directories, read the dynamic
settings, load the logs, register (the czxid is the broker epoch), start the controller, serve requests.
Stop: hand over leadership, answer the last requests, flush the logs and mark them clean, end the session.
"""

import asyncio
import random
import resource
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.cleaner.worker import ChildProcess
from logyard.broker.clock import SystemClock
from logyard.broker.compiled import loading
from logyard.broker.components import Components
from logyard.broker.config import http_side
from logyard.broker.config.acted_on import AUTHORIZER_ZOOKEEPER
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.features import SUPPORTED
from logyard.broker.config.topic import TopicConfig
from logyard.broker.controller import policies
from logyard.broker.controller.garbage_collector import lasting
from logyard.broker.environment import Environment
from logyard.broker.errors import LogyardError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.http.server import HttpServer
from logyard.broker.http_gate import gate_of
from logyard.broker.log import settings as log_settings
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.store import LogStore
from logyard.broker.log_levels import LogLevels
from logyard.broker.model import BrokerInfo, Endpoint
from logyard.broker.records import compiled_loops, pauses
from logyard.broker.security import zookeeper_access
from logyard.broker.security.signing_keys import JwksSettings, SigningKeys
from logyard.broker.server.admission import Admission, RequestMemory, limits_from
from logyard.broker.server.listener import Buffers, Listener
from logyard.broker.server.logins.logins import BeginLogin, logins_of
from logyard.broker.server.logins.mechanisms import CredentialSources
from logyard.broker.server.record_threads import RecordThreads
from logyard.broker.server.unread_answers import UnreadAnswers
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.zk import registration
from logyard.broker.zk.new_sessions import NewSessions
from logyard.broker.zk.session import ZooKeeperSession
from logyard.broker.znodes.brokers import version_for
from logyard.broker.znodes.ops import SessionExpired

DISK_THREADS = 8
# What they do needs the interpreter.
LOGIN_THREADS = 2
# They may wait for a Kerberos server, which must not delay the log-ins of clients.
PEER_LOGIN_THREADS = 2
# The longest that the event loop waits for a thread that runs Python code. Python's default, 5 ms, delays a Produce.
SWITCH_INTERVAL_S = 0.0005

log = structlog.get_logger("logyard.broker")


async def read_identity(config: BrokerConfig, environment: Environment) -> DirectoryIdentity | None:
    """Return the cluster and broker id in the log directories' meta.properties, None if the directories are new."""
    store = LogStore(
        log_settings.settings_from(config, environment.open_files_max),
        environment.disk,
        environment.clock,
        environment.run_blocking,
        topic_config=lambda _: TopicConfig(),
    )
    try:
        return await store.open()
    finally:
        await store.close()


def real_environment(config: BrokerConfig, log_levels: LogLevels | None = None) -> Environment:
    """Return the environment of this process and machine; call it on the running loop."""
    loop = asyncio.get_running_loop()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    pool = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
    # A separate pool: a client that sends hard batches must not delay the disk's threads.
    record_threads = RecordThreads()
    pauses.use(record_threads.pause, record_threads.worked_apart)
    run_blocking = partial(loop.run_in_executor, pool)
    compiled_loops.load_by(lambda: tasks.spawn("compiled loops", loading.load(partial(_run_lasting, run_blocking))))
    handshakes = Handshakes()
    login_pool = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="login")
    peer_login_pool = ThreadPoolExecutor(PEER_LOGIN_THREADS, thread_name_prefix="peer-login")
    clock = SystemClock()
    limits = limits_from(config)
    admission = Admission(limits, lambda: clock.monotonic() * 1000)
    answers = UnreadAnswers(config.int("logyard.queued.max.answer.bytes"), clock.monotonic)
    memory = RequestMemory(limits.memory_bytes) if limits.memory_bytes > 0 else None
    return Environment(
        clock=clock,
        disk=OsDisk(),
        chance=SystemChance(),
        new_uuid=uuid.uuid4,
        new_session_id=partial(random.randrange, 1, 2**31),
        run_blocking=run_blocking,
        run_record_work=record_threads.submit,
        run_login_work=partial(loop.run_in_executor, login_pool),
        run_peer_login_work=partial(loop.run_in_executor, peer_login_pool),
        open_zookeeper=lambda: ZooKeeperSession(
            config.str("zookeeper.connect"),
            session_timeout_ms=config.int("zookeeper.session.timeout.ms"),
            max_in_flight=config.int("zookeeper.max.in.flight.requests"),
            access=zookeeper_access.of_broker(config),
            set_acl=config.bool("zookeeper.set.acl"),
        ),
        open_listener=lambda endpoint, tls: Listener(
            endpoint,
            admission,
            memory,
            answers,
            run_blocking,
            protected=len(config.listeners) > 1 and endpoint.listener == config.inter_broker_listener,
            tls=tls,
            buffers=Buffers(config.int("socket.send.buffer.bytes"), config.int("socket.receive.buffer.bytes")),
        ),
        open_acl_zookeeper=acl_zookeeper(config),
        handshakes=handshakes,
        admission=admission,
        answers=answers,
        open_http=HttpServer,
        close=partial(_end, admission, (pool, login_pool, peer_login_pool), record_threads, handshakes),
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        open_cleaner=ChildProcess,
        log_levels=log_levels or LogLevels(),
    )


async def _run_lasting(run_blocking: RunBlocking, work: Callable[[], Any]) -> Any:
    """Run work that imports much: a search of all objects in its middle would take 60 ms."""
    with lasting():
        return await run_blocking(work)


def acl_zookeeper(config: BrokerConfig) -> Callable[[], ZooKeeperSession] | None:
    """Return what opens the session for the ACLs; None: they are read in the broker's own (decision 29)."""
    if not config.str("authorizer.class.name") or all(config.value(name) is None for name in AUTHORIZER_ZOOKEEPER):
        return None

    def of(name: str) -> Any:
        own = config.value(f"authorizer.{name}")
        return config.value(name) if own is None else own

    return lambda: ZooKeeperSession(
        str(config.value("authorizer.zookeeper.url") or config.str("zookeeper.connect")),
        session_timeout_ms=of("zookeeper.session.timeout.ms"),
        max_in_flight=of("zookeeper.max.in.flight.requests"),
        access=zookeeper_access.of_authorizer(config),
        set_acl=config.bool("zookeeper.set.acl"),
    )


def _end(
    admission: Admission, pools: Sequence[ThreadPoolExecutor], record_threads: RecordThreads, handshakes: Handshakes
) -> None:
    compiled_loops.load_by(None)
    admission.close()
    handshakes.close()
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)
    record_threads.close()


class SystemChance:
    """The machine's own randomness, for the controller."""

    def below(self, bound: int) -> int:
        return random.randrange(bound)

    def topic_id(self) -> uuid.UUID:
        # As in Kafka no id begins with a dash: ids are written into files and commands.
        while True:
            topic_id = uuid.uuid4()
            if topic_id.bytes[0] >> 2 != 62:
                return topic_id


class Broker:
    """One broker; the constructor raises ConfigProblems if a configured policy cannot be loaded."""

    def __init__(
        self, config: BrokerConfig, environment: Environment | None = None, log_levels: LogLevels | None = None
    ) -> None:
        self.config = config
        self._log_levels = log_levels
        self._policies = policies.load(config)
        self._environment = environment
        self._stopping = asyncio.Event()
        self._failure: str | None = None
        self._sessions: NewSessions | None = None
        self.components: Components | None = None
        self._zk: Any = None
        self._registration: registration.BrokerRegistration | None = None
        self.listeners: list[Any] = []
        self._http: HttpServer | None = None
        self._signing_keys: list[SigningKeys] = []
        self.before_serving: Callable[[], None] = lambda: None

    def stop(self) -> None:
        """Begin an orderly shutdown; may be called again, from a signal handler too."""
        self._stopping.set()

    def fail(self, reason: str) -> None:
        """Stop because of a failure that the broker cannot survive; `run` then returns 1."""
        log.error("stopping", reason=reason)
        self._failure = self._failure or reason
        self._stopping.set()

    async def run(self) -> int:
        """Start, serve until `stop`, shut down; returns the exit status. Raises LogyardError if it cannot start."""
        environment = self._environment = self._environment or real_environment(self.config, self._log_levels)
        try:
            await self.start()
            await self._stopping.wait()
        finally:
            await self.close()
            environment.close()
        return 1 if self._failure else 0

    async def start(self) -> None:
        """Start everything, up to and including serving requests."""
        assert self._environment is not None
        environment = self._environment
        self._zk = environment.open_zookeeper()
        await self._wait_for_zookeeper()
        await registration.create_persistent_paths(self._zk)
        cluster_id = await registration.get_or_create_cluster_id(self._zk, environment.new_uuid)
        if self.config.broker_id < 0:
            self.config = self.config.with_static({"broker.id": str(await self._own_id())})
            structlog.contextvars.bind_contextvars(broker=self.config.broker_id)
        log.info("starting", cluster=cluster_id, session=f"0x{self._zk.session_id & (2**64 - 1):x}")
        components = self.components = Components(
            self.config, environment, self._zk, cluster_id, self.fail, self._policies
        )
        sources = self._credential_sources(components, environment)
        logins = self._logins(components, environment, sources)
        await components.load()
        self.listeners = [
            environment.open_listener(e, components.tls.server(e.listener)) for e in self.config.listeners
        ]
        if environment.open_http is not None:
            self._http = environment.open_http(*self.config.http_listener, components.tls.http)
            components.services.http_address = self._http_address()
        self._registration = registration.BrokerRegistration(self._zk)
        self._zk.on_session_lost = self._session_lost
        stand = components.controller.on_session_established
        self._sessions = NewSessions(self.register, components.watches, stand, self.fail)
        self._zk.on_session_established = self._sessions.take
        await self._register_first()
        await components.start()
        if self._http is not None:
            book = components.lease_service.leases.book
            gate = gate_of(self.config, environment, sources, components.services, book)
            await self._http.start(components.http.app(gate.access, gate.routes))
        self.before_serving()
        for listener in self.listeners:
            await listener.serve(components.dispatcher, logins.get(listener.name))
        addresses = ", ".join(f"{li.name}://{li.host}:{li.port}" for li in self.listeners)
        log.info("serving", listeners=addresses, http=self._http_address(), epoch=components.broker_epoch)

    def _credential_sources(self, components: Components, environment: Environment) -> CredentialSources:
        return CredentialSources(
            components.configs.credentials,
            environment.clock.now_ms,
            components.tokens.credential,
            partial(self._follow_keys, environment.run_login_work or environment.run_blocking),
        )

    def _logins(
        self, components: Components, environment: Environment, sources: CredentialSources
    ) -> Mapping[str, BeginLogin]:
        """Read the settings of the listeners with SASL. Raises ConfigProblems."""
        return logins_of(
            self.config,
            sources,
            components.dispatcher,
            environment.run_login_work or environment.run_blocking,
            environment.clock,
            components.services.login_counters,
        )

    def _follow_keys(self, run_blocking: RunBlocking, settings: JwksSettings) -> SigningKeys:
        self._signing_keys.append(SigningKeys(settings, run_blocking))
        return self._signing_keys[-1]

    async def _own_id(self) -> int:
        """Return the id in the log directories, else a new one from ZooKeeper (facts §1, seqid)."""
        assert self._environment is not None
        kept = await read_identity(self.config, self._environment)
        if kept is not None and kept.broker_id is not None:
            return kept.broker_id
        if not self.config.bool("broker.id.generation.enable"):
            raise LogyardError("broker.id is -1 and broker.id.generation.enable is false: set broker.id")
        return await registration.generate_broker_id(self._zk, self.config.int("reserved.broker.max.id"))

    async def close(self) -> None:
        """Hand over leadership, drain requests, flush logs, end the session; safe at any stage of the start."""
        components = self.components
        if components is not None and components.running and self._failure is None:
            await components.hand_over()
        for listener in self.listeners:
            await listener.drain()
        if components is not None:
            components.stop_waiting()
        await asyncio.gather(*(listener.close() for listener in self.listeners))
        for keys in self._signing_keys:
            keys.close()
        if self._http is not None:
            await self._http.close()
        if self._sessions is not None:
            self._sessions.close()
        if components is not None:
            await components.close()
        if self._zk is not None:
            self._zk.on_session_lost = lambda: None
            await self._zk.close()
        log.info("stopped", clean=self._failure is None)

    async def _register_first(self) -> None:
        """Register; if the session ends meanwhile, in the next one: the logs are loaded, which may have taken long."""
        while True:
            try:
                await self.register()
            except SessionExpired:
                log.warning("the session ended before this broker was registered; it tries again in the next one")
            else:
                return
            await asyncio.sleep(tasks.PAUSE_S)
            with suppress(SessionExpired):
                await self._wait_for_zookeeper()

    async def _wait_for_zookeeper(self) -> None:
        await self._zk.wait_connected(self.config.int("zookeeper.connection.timeout.ms") / 1000)

    async def register(self) -> None:
        assert self.components is not None
        assert self._registration is not None
        assert self._environment is not None
        info = self.describe()
        epoch = await self._registration.register(
            info,
            self._environment.clock.now_ms(),
            version=version_for(self.config.ibp),
            patience_s=1.5 * self.config.int("zookeeper.session.timeout.ms") / 1000,
        )
        self.components.registered(epoch)
        log.info("registered", epoch=epoch)

    def describe(self) -> BrokerInfo:
        """Return what this broker publishes: advertised addresses, with ports from the sockets where they are 0."""
        bound = {listener.name: listener.port for listener in self.listeners}
        endpoints = tuple(
            Endpoint(e.listener, e.protocol, e.host, e.port or bound[e.listener])
            for e in self.config.advertised_listeners
        )
        return BrokerInfo(
            self.config.broker_id,
            endpoints,
            self.config.optional_str("broker.rack"),
            http=self._http_address(),
            features=tuple(SUPPORTED.items()),
        )

    def _http_address(self) -> str | None:
        if self._http is None:
            return None
        told = self.config.optional_str("http.advertised.listener") or f"{self._http.host}:{self._http.port}"
        return told if http_side.shared(self.config) is None else f"https://{told}"

    def _session_lost(self) -> None:
        log.warning("the ZooKeeper session is lost")
        if self.components is not None:
            self.components.controller.on_session_lost()
