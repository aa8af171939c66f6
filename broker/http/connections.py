"""HTTP connections with time limits: uvicorn's own wait for ever for a head, a body, or a reader.

Rule 1: a request's head has to be complete ten seconds after the connection was made or the last answer was sent.
Rule 2: while a body is sent or an answer is read, 16 KiB a minute have to pass, or the rest of it.
Rule 3: while the broker works on a request there is no limit: a commit may take minutes.
Rule 4: there are 512 connections at most. One more takes the place of the one that has gone longest without a request;
        if all have one, it is closed at once.

A head has at most 16 KiB (h11's bound).
"""

from typing import Any

from logyard.broker.http.uvicorn_parts import H11Protocol

CONNECTIONS_MAX = 512
HEAD_S = 10.0
PIECE_S = 60.0
PIECE_BYTES = 16 * 1024
LOOK_S = 1.0


class BoundedConnection(H11Protocol):
    """See the head of this file."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._life = (0, -1)
        self._moved = self._life_moved = self._sent_before = 0
        self._since = self.loop.time()
        self._timer = self.loop.call_later(LOOK_S, self._look)
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def _make_room(self) -> None:
        """Close the connection that has waited longest for a request, this one if none does."""
        others: Any = [other for other in self.connections if other is not self]
        idle = [other for other in others if isinstance(other, BoundedConnection) and other.is_idle]
        leaving: BoundedConnection = min(idle, key=lambda other: other.since, default=self)
        self.logger.warning("HTTP connection closed: %d are open", CONNECTIONS_MAX)
        leaving.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request, or for the end of its handshake or head."""
        cycle: Any = self.cycle
        return not self.transport.is_closing() and (cycle is None or cycle.response_complete)

    @property
    def since(self) -> float:
        """When it last went on, in seconds of the loop's clock."""
        return self._since

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._moved += len(data)
        super().data_received(data)

    def _look(self) -> None:
        self._timer = self.loop.call_later(LOOK_S, self._look)
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        cycle: Any = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if self._stage() != self._life:
            self._life, self._since, self._life_moved = self._stage(), now, self._moved
        if unsent != self._sent_before:
            # The buffer grows by what the broker writes; only what it shrinks by was read by the peer.
            self._moved += max(0, self._sent_before - unsent)
            self._sent_before = unsent
        if answering and not cycle.more_body and not unsent:
            self._since = now  # the broker is at work
        elif (answering or unsent) and self._moved - self._life_moved >= PIECE_BYTES:
            self._since, self._life_moved = now, self._moved
        if now - self._since >= (PIECE_S if answering or unsent else HEAD_S):
            self.logger.warning("HTTP connection closed: its peer is too slow")
            self.transport.abort()

    def _stage(self) -> tuple[int, int]:
        """Return the request (0: none) and what is awaited: its body, or the end of its answer."""
        cycle: Any = self.cycle
        if cycle is None:
            return 0, 0
        return id(cycle), 2 if cycle.response_complete else int(cycle.more_body)
