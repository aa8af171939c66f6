"""A network in memory: delays drawn from the seed, links that are cut in two ways, connections that die with a process.

Bytes of one connection arrive in order and whole. A link that is cut `silently` holds what is sent until it is healed
(TCP sends again); one that is cut loudly resets its connections, and refuses new ones.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.process import NOBODY, PROCESS, Process
from tests.simulation.trace import Trace

DELAY_S = (0.0002, 0.003)
HANG_S = 3600.0
AGAIN_S = 0.4  # until a lost packet is sent again


class Network:
    """What listens where, and which pairs of hosts cannot reach each other. `slowness` multiplies every delay."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, chance: random.Random, trace: Trace) -> None:
        self._chance = chance
        self._trace = trace
        self._listening: dict[tuple[str, int], tuple[Process, Callable[[], Any]]] = {}
        self._cut: dict[tuple[str, str], bool] = {}
        self._stalled: dict[SimTransport, None] = {}
        self.slowness = 1.0
        self.delivered = 0

    def listen(self, process: Process, address: str, port: int, factory: Callable[[], Any]) -> None:
        self._listening[address, port] = (process, factory)

    def unlisten(self, process: Process, address: str, port: int) -> None:
        if (found := self._listening.get((address, port))) is not None and found[0] is process:
            del self._listening[address, port]

    def cut(self, a: Process, b: Process, *, silently: bool) -> None:
        """Let nothing pass between the two hosts any more."""
        self._cut[a.name, b.name] = self._cut[b.name, a.name] = silently
        if not silently:
            for transport in [t for t in a.transports if t.peer.process.name == b.name]:
                transport.reset()

    def heal(self, a: str, b: str) -> None:
        self._cut.pop((a, b), None)
        self._cut.pop((b, a), None)
        for transport in list(self._stalled):
            if self.reaches(transport.process.name, transport.peer.process.name):
                del self._stalled[transport]
                transport.flow()

    def heal_all(self) -> None:
        self.slowness = 1.0
        for a, b in list(self._cut):
            self.heal(a, b)

    def reaches(self, a: str, b: str) -> bool:
        return (a, b) not in self._cut

    def kill(self, process: Process) -> None:
        """Its sockets close, as the kernel of a machine that lives on would: what was sent still arrives."""
        for key, (owner, _) in list(self._listening.items()):
            if owner is process:
                del self._listening[key]
        for transport in list(process.transports):
            transport.orphaned()

    def delay(self) -> float:
        return self._chance.uniform(*DELAY_S) * self.slowness

    def stall(self, transport: "SimTransport") -> None:
        self._stalled[transport] = None

    def delivered_to(self, process: Process, data: bytes) -> None:
        self.delivered += 1
        self._trace.note(f"to {process.name}", data)

    async def connect(self, factory: Callable[[], Any], address: str, port: int) -> tuple[Any, Any]:
        caller = PROCESS.get()
        assert caller is not None, "only processes connect"
        await asyncio.sleep(self.delay())
        silent = self._cut.get((caller.name, address))
        if silent:
            await asyncio.sleep(HANG_S)
        found = self._listening.get((address, port))
        if found is None or silent is not None:
            raise ConnectionRefusedError(f"{address}:{port} refuses")
        process, server_factory = found
        near, far = SimTransport(self, caller), SimTransport(self, process)
        near.peer, far.peer = far, near
        self.loop.call_soon(far.attach, server_factory, context=process.context)
        near.attach(factory)
        return near, near.protocol


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    peer: "SimTransport"

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__()
        self._network, self.process = network, process
        self.protocol: Any = None
        self._arrives_at = 0.0
        self._closed = False
        self.broken = False
        self.held = False
        self._reading = True
        self._held: list[bytes] = []
        self._in_flight: list[Callable[[], None]] = []
        process.transports[self] = None

    def attach(self, factory: Callable[[], Any]) -> None:
        if self._closed:
            return
        self.protocol = factory()
        self.protocol.connection_made(self)

    # Sending

    def write(self, data: Any) -> None:
        if not self._closed and self.process.alive:
            self._send(partial(self.peer.deliver, bytes(data)))

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(bytes(piece) for piece in pieces))

    def _send(self, what: Callable[[], None]) -> None:
        """Have `what` happen at the other end, behind all that was sent before."""
        loop = self._network.loop
        self._arrives_at = max(self._arrives_at, loop.time() + self._network.delay())
        loop.call_at(self._arrives_at, self._arrive, what, context=NOBODY)

    def _arrive(self, what: Callable[[], None]) -> None:
        if self.broken:
            return
        self._in_flight.append(what)
        if self.held:
            return
        if self._network.reaches(self.process.name, self.peer.process.name):
            self.flow()
        else:
            self._network.stall(self)

    def flow(self) -> None:
        """Hand over what has arrived."""
        arrived, self._in_flight = self._in_flight, []
        for what in arrived:
            self._network.loop.call_soon(what, context=self.peer.process.context)

    def release(self) -> None:
        """What was held back on this connection alone (its packets were lost, and are sent again) arrives.

        Packets come one after the other: the end of a connection that was given up comes last, and later.
        """
        self.held = False
        waiting, self._in_flight = self._in_flight, []
        self._in_flight = [what for what in waiting if what != self.peer.hung_up]
        for what in waiting:
            if what == self.peer.hung_up:
                at = self._network.loop.time() + AGAIN_S
                self._network.loop.call_at(at, self._arrive, what, context=NOBODY)
        if self._network.reaches(self.process.name, self.peer.process.name):
            self.flow()
        else:
            self._network.stall(self)

    # Receiving

    def deliver(self, data: bytes) -> None:
        if self._closed:
            return
        if not self._reading:
            self._held.append(data)
            return
        self._network.delivered_to(self.process, data)
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        view = memoryview(data)
        while view and not self._closed:
            buffer = memoryview(self.protocol.get_buffer(len(view)))
            taken = min(len(buffer), len(view))
            buffer[:taken] = view[:taken]
            self.protocol.buffer_updated(taken)
            view = view[taken:]

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        held, self._held = self._held, []
        for data in held:
            self._network.loop.call_soon(self.deliver, data)

    # Ending

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer.process.name, 0) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._network.loop.call_soon(self._lost, None)
            self._send(self.peer.hung_up)

    def abort(self) -> None:
        self.close()

    def hung_up(self, error: Exception | None = None) -> None:
        """The other end is gone."""
        if not self._closed:
            self._closed = True
            self._lost(error)

    def _lost(self, error: Exception | None) -> None:
        self.process.transports.pop(self, None)
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def orphaned(self) -> None:
        """The process at this end was killed."""
        self._closed = True
        self.process.transports.pop(self, None)
        self._send(self.peer.hung_up)

    def reset(self) -> None:
        """Both ends lose the connection, and what is on its way."""
        for end in (self, self.peer):
            end.broken = True
            error = ConnectionResetError("the connection was reset")
            self._network.loop.call_soon(end.hung_up, error, context=end.process.context)
