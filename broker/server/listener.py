"""The broker's server sockets: bound before the broker registers its address, served when the broker is ready."""

import asyncio
import itertools
import socket
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

import structlog

from logyard.broker import tasks
from logyard.broker.errors import LogyardError
from logyard.broker.event_loop import SubmitBlocking
from logyard.broker.model import Endpoint
from logyard.broker.server import addresses
from logyard.broker.server.admission import Admission, RequestMemory
from logyard.broker.server.connection import Connection
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.logins.logins import BeginLogin
from logyard.broker.server.unread_answers import UnreadAnswers
from logyard.broker.tls.server_side import ServerSide

BACKLOG = 1024
# How often idle connections are looked for, within the time that they may be idle.
SWEEPS_PER_IDLE_TIME = 4
ACCEPT_RETRY_S = 0.1
# How long the peer of a closed connection may take to read the rest.
CLOSING_S = 30.0

log = structlog.get_logger("logyard.listener")


class BindFailed(LogyardError):
    """A listener's address cannot be bound."""


class Buffers(NamedTuple):
    """What the system keeps for a connection: of answers that the peer has not taken, and of requests that the broker
    has not read. 0 and less leave it to the system."""

    send_bytes: int
    receive_bytes: int


SYSTEMS = Buffers(0, 0)


class Listener:
    """One named listener: its socket and its connections. See admission.py for `protected`.

    With `run_blocking`, which waits for the disk, records are sent from their files to who speaks no TLS.
    """

    _ids = itertools.count(1)

    def __init__(
        self,
        endpoint: Endpoint,
        admission: Admission,
        memory: RequestMemory | None = None,
        answers: UnreadAnswers | None = None,
        run_blocking: SubmitBlocking | None = None,
        *,
        protected: bool = False,
        tls: ServerSide | None = None,
        buffers: Buffers = SYSTEMS,
    ) -> None:
        self.name = endpoint.listener
        self._protocol = endpoint.protocol
        self._tls = tls
        self.admission = admission
        self._memory = memory
        self._answers = answers
        self._run_blocking = run_blocking
        self._begin_login: BeginLogin | None = None
        self._protected = protected
        self._buffers = buffers
        self.connections: dict[Connection, None] = {}
        self._turned_away: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._socket = _bound(endpoint, buffers)
        self.host = endpoint.host
        self.port: int = self._socket.getsockname()[1]

    async def serve(self, dispatcher: Dispatcher, begin_login: BeginLogin | None = None) -> None:
        """Begin to accept connections; those made since the bind wait in the backlog.

        With `begin_login` their peers have to log in first.
        """
        self._begin_login = begin_login
        self._tasks.append(tasks.keep(f"accept {self.name}", partial(self._accept, dispatcher), ACCEPT_RETRY_S))
        self._tasks.append(tasks.keep(f"idle {self.name}", self._sweep))

    async def _accept(self, dispatcher: Dispatcher) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.admission.wait_for_room(self.name, protected=self._protected)
            try:
                sock, address = await loop.sock_accept(self._socket)
            except OSError as error:
                # Mostly no descriptors are left: try again, as other connections may be closed.
                log.warning("cannot accept", listener=self.name, error=error.strerror)
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            host = addresses.plain(str(address[0]))
            try:
                if self._is_refused(sock, host):
                    continue
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if self._buffers.send_bytes > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._buffers.send_bytes)
                await _whole(loop.connect_accepted_socket(partial(self._connection, dispatcher, sock), sock))
            except OSError:
                sock.close()  # the peer has gone already
            except Exception:
                # One connection must not end the listener.
                log.exception("a connection could not be accepted", listener=self.name, peer=host)
                sock.close()

    def _is_refused(self, sock: socket.socket, host: str) -> bool:
        refusal = self.admission.refusal(host)
        delay_ms = 0 if refusal else self.admission.delay_ms(host, self.name, protected=self._protected)
        if not refusal and not delay_ms:
            return False
        why = refusal or "its address exceeds its connection rate"
        log.warning("connection refused", listener=self.name, peer=host, why=why)
        self._turn_away(sock, delay_ms)
        return True

    def _connection(self, dispatcher: Dispatcher, sock: socket.socket) -> asyncio.BufferedProtocol:
        connection = Connection(
            dispatcher,
            self.name,
            next(self._ids),
            self.admission.limits.frame_bytes_max,
            self._opened,
            self._closed,
            self._memory,
            self._answers,
        )
        if self._begin_login is not None:
            self._begin_login(connection)
        session = connection.session
        session.protocol = self._protocol
        if self._tls is None:
            if self._run_blocking is not None:
                connection.writer.send_files_by(sock, self._run_blocking, connection.resume_writing)
                session.sends_files = True
            return connection

        def named(principal: str) -> None:
            session.principal = principal

        return self._tls.wrap(connection, lambda: session.client_host, named)

    def _turn_away(self, sock: socket.socket, delay_ms: int) -> None:
        def close() -> None:
            self._turned_away.pop(sock, None)
            sock.close()

        if delay_ms:
            self._turned_away[sock] = asyncio.get_running_loop().call_later(delay_ms / 1000, close)
        else:
            close()

    async def _sweep(self) -> None:
        """Close connections that were idle for `connections.max.idle.ms`: no request, and no byte of an answer read.

        As in Kafka this holds for peers that wait for an answer too: a peer that has vanished looks the same.

        A connection that was closed, but whose peer does not read the rest, is aborted sooner (CLOSING_S).
        """
        idle_s = self.admission.limits.idle_ms / 1000
        closing_s = min(idle_s, CLOSING_S) if idle_s > 0 else CLOSING_S
        watched: dict[Connection, tuple[int, float]] = {}
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(closing_s / SWEEPS_PER_IDLE_TIME)
            now = loop.time()
            still: dict[Connection, tuple[int, float]] = {}
            for connection in list(self.connections):
                life = connection.signs_of_life
                before, since = watched.get(connection, (-1, now))
                if life != before or (connection.is_kept_waiting and not connection.is_closing):
                    still[connection] = (life, now)
                    self.admission.active(connection)
                    continue
                still[connection] = (life, since)
                if connection.is_closing:
                    if now - since >= closing_s:
                        log.info("connection cut off, closing", listener=self.name, peer=connection.peer)
                        connection.abort()
                elif 0 < idle_s <= now - since:
                    log.info("connection closed, idle", listener=self.name, peer=connection.peer)
                    connection.abort()
            watched = still

    async def drain(self) -> None:
        """Accept no connection and start no request any more; connections without a request in progress are closed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()
        for sock, timer in list(self._turned_away.items()):
            timer.cancel()
            sock.close()
        for connection in list(self.connections):
            connection.drain()

    async def close(self, grace_s: float = 5.0) -> None:
        """Drain, wait at most `grace_s` seconds for the answers of requests in progress, then close the rest."""
        await self.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        while self.connections and loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            log.warning("connection cut off, stopping", listener=self.name, peer=connection.peer, owed=connection.owed)
            connection.close()
            connection.abort()

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    def _opened(self, connection: Connection) -> bool:
        self.admission.enter(connection, connection.address, self.name, protected=self._protected)
        self.connections[connection] = None
        log.debug("connection opened", listener=self.name, peer=connection.peer)
        return True

    def _closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self.admission.leave(connection)
        log.debug("connection closed", listener=self.name, peer=connection.peer)


async def _whole(accepting: Coroutine[Any, Any, object]) -> None:
    """Finish accepting a connection even if the caller is cancelled meanwhile.

    If it were cancelled, uvloop would free the connection's transport and never call its `connection_lost`; the
    connection would be counted, and waited for, although it is gone.
    """
    task = tasks.answering(accepting)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _bound(endpoint: Endpoint, buffers: Buffers) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if buffers.receive_bytes > 0:
        # Connections have it from here: a peer is told at its handshake how much it may ever send ahead.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers.receive_bytes)
    try:
        sock.bind((endpoint.host, endpoint.port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise BindFailed(
            f"listener {endpoint.listener}: {endpoint.host}:{endpoint.port} cannot be bound ({error.strerror}); "
            "choose another port in `listeners` or stop what holds it"
        ) from error
    sock.setblocking(False)
    return sock
