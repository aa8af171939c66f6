"""The cleaning of one broker: its own cleaner, and catching up with decisions made elsewhere."""

from collections.abc import Callable
from functools import partial

from logyard.broker.cleaner.catch_up import CatchUp, CatchUpPorts
from logyard.broker.cleaner.cleaner import CleanerPorts, LogCleaner
from logyard.broker.cleaner.settings import settings_from
from logyard.broker.cleaner.worker import CleaningWorker
from logyard.broker.client import http_get
from logyard.broker.client.http_get import HttpLogin, NoAnswer
from logyard.broker.clock import Clock
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.errors import LogyardError
from logyard.broker.event_loop import RunBlocking
from logyard.broker.leases.service import LeaseService
from logyard.broker.log.store import LogStore
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import NO_LEADER, TopicPartition
from logyard.broker.znodes import brokers
from logyard.broker.znodes.ops import ZooKeeper


class CleaningService:
    """Started with the broker, closed before its leases. `cleaner` is None if log.cleaner.enable=false."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: LogStore,
        lease_service: LeaseService,
        metadata: MetadataCache,
        zk: ZooKeeper,
        clock: Clock,
        run_blocking: RunBlocking,
        open_worker: Callable[[], CleaningWorker],
    ) -> None:
        self._settings = settings_from(config)
        self._broker_id = config.broker_id
        self._metadata, self._zk, self._run = metadata, zk, run_blocking
        self.http_login = HttpLogin()
        leases = lease_service.leases
        self.catch_up = CatchUp(
            CatchUpPorts(
                logs=store.logs.all_current,
                find=store.logs.get,
                clean_offset=leases.clean_offset,
                is_held=leases.book.is_being_compacted,
                leader_of=self.leader_of,
                ask=self.ask,
                lease_service=lease_service,
                clock=clock,
                open_worker=open_worker,
                bytes_per_second=lambda: self._settings.bytes_per_second_each,
            )
        )
        self.cleaner: LogCleaner | None = None
        if config.bool("log.cleaner.enable"):
            ports = CleanerPorts(
                logs=store.logs.all_current,
                find=store.logs.get,
                clean_offset=leases.clean_offset,
                is_held=leases.book.is_being_compacted,
                lease_service=lease_service,
                clock=clock,
                run_blocking=run_blocking,
                open_worker=open_worker,
            )
            self.cleaner = LogCleaner(ports, self._settings)

    def start(self) -> None:
        """Clean and catch up from now on."""
        self.catch_up.start()
        if self.cleaner is not None:
            self.cleaner.start()

    async def close(self) -> None:
        """Stop, also during work."""
        await self.catch_up.close()
        if self.cleaner is not None:
            await self.cleaner.close()

    def configure(self, config: BrokerConfig) -> None:
        """Use these settings from now on."""
        self._settings = settings_from(config)
        if self.cleaner is not None:
            self.cleaner.configure(self._settings)

    def gauges(self) -> dict[str, int]:
        return {} if self.cleaner is None else self.cleaner.gauges()

    def leader_of(self, tp: TopicPartition) -> int | None:
        """Return the leader that this broker follows in sync, None if it does not."""
        known = self._metadata.partition(tp)
        if known is None or known.leader in (NO_LEADER, self._broker_id) or self._broker_id not in known.isr:
            return None
        return known.leader

    async def ask(self, broker_id: int, path: str) -> bytes:
        try:
            (znode,) = await self._zk.read([brokers.path(broker_id)])
            address = None if znode is None else brokers.decode(broker_id, znode).http
        except LogyardError as error:
            raise NoAnswer(f"broker {broker_id}: {error}") from error
        if address is None:
            raise NoAnswer(f"broker {broker_id} publishes no HTTP address, or is gone")
        answer: bytes = await self._run(partial(http_get.get, address, path, self.http_login))
        return answer
