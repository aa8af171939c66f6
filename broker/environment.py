"""Everything outside a broker, as ports: built for real by broker.py, in memory by the simulator."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.cleaner.worker import CleaningWorker
from logyard.broker.clock import Clock
from logyard.broker.controller.ports import Chance
from logyard.broker.event_loop import SubmitBlocking, SubmitForClient, Timers
from logyard.broker.http.server import HttpServer
from logyard.broker.leases.leases import LeasePorts
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.store import LogStore
from logyard.broker.log_levels import LogLevels
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import Endpoint
from logyard.broker.replication.replicas import Replicas
from logyard.broker.server.admission import Admission
from logyard.broker.server.unread_answers import UnreadAnswers
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.server_side import ServerSide


@dataclass(slots=True)
class Environment:
    """Clock, disk, randomness, threads, ZooKeeper and sockets of one broker.

    `open_zookeeper` gives a `ZooKeeper` with session callbacks (zk/session.py, zk/memory.py), `open_acl_zookeeper` that
    of the ACLs if it is another one or another session; `open_listener` something
    that binds at once and serves later (server/listener.py), with TLS or without; `open_cleaner` a worker that cleans
    compacted logs, None if there is no cleaner. `run_record_work` runs work on records in separate threads; if it is
    None, the disk's are used; `run_login_work` is the same for clients' log-ins, `run_peer_login_work` for those of
    this broker. Without `handshakes` nothing can have TLS.
    """

    clock: Clock
    disk: Disk
    chance: Chance
    new_uuid: Callable[[], uuid.UUID]
    new_session_id: Callable[[], int]
    run_blocking: SubmitBlocking
    open_zookeeper: Callable[[], Any]
    open_listener: Callable[[Endpoint, ServerSide | None], Any]
    open_http: Callable[[str, int, ServerSide | None], HttpServer] | None
    close: Callable[[], None]
    admission: Admission | None = None
    open_files_max: int = 1 << 20
    open_cleaner: Callable[[], CleaningWorker] | None = None
    run_record_work: SubmitForClient | None = None
    run_login_work: SubmitBlocking | None = None
    run_peer_login_work: SubmitBlocking | None = None
    answers: UnreadAnswers | None = None
    handshakes: Handshakes | None = None
    open_acl_zookeeper: Callable[[], Any] | None = None
    log_levels: LogLevels = field(default_factory=LogLevels)

    def lease_ports(self, store: LogStore, replicas: Replicas, metadata: MetadataCache, timers: Timers) -> LeasePorts:
        """Return what leases need of this broker."""
        return LeasePorts(
            store=store,
            replicas=replicas,
            metadata=metadata,
            disk=self.disk,
            clock=self.clock,
            timers=timers,
            run_blocking=self.run_blocking,
            new_id=lambda: self.new_uuid().hex,
        )
