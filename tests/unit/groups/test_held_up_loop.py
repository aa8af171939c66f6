"""A loop that was held up: what has arrived meanwhile is read before anybody is thrown out for silence.

libuv, and so uvloop, runs the timers that are due before it reads from sockets.
"""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from logyard.broker.clock import SystemClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership
from logyard.broker.groups.events import Join, Sync
from logyard.broker.groups.runner import GroupCoordinator
from tests.support.memory_offsets_log import MemoryOffsetsLog

SESSION_MS = 800


class Connection(asyncio.Protocol):
    """A connection of which every byte is a request."""

    def __init__(self, handle: Callable[[], None]) -> None:
        self._handle = handle

    def data_received(self, data: bytes) -> None:
        self._handle()


class Peers:
    """Clients at the other ends of connections."""

    def __init__(self) -> None:
        self._transports: list[asyncio.BaseTransport] = []
        self._sockets: list[socket.socket] = []

    async def connect(self, handle: Callable[[], None]) -> socket.socket:
        ours, theirs = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: Connection(handle), sock=ours)
        self._transports.append(transport)
        self._sockets.append(theirs)
        return theirs

    def close(self) -> None:
        for transport in self._transports:
            transport.close()
        for peer in self._sockets:
            peer.close()


async def state_after_a_hold_up(*, beats: bool) -> str:
    rules = membership.Rules(initial_delay_ms=0, session_timeout_ms_min=1)
    loop = asyncio.get_running_loop()
    made = GroupCoordinator(MemoryOffsetsLog(1), SystemClock(), loop.call_later, lambda: "id", rules)
    made.on_leader(0)
    await asyncio.sleep(0.01)
    joined = await made.join("g", Join("", None, "c", "/h", SESSION_MS, 1000, "consumer", (("range", b""),)))
    await made.sync("g", Sync(joined.member_id, None, 1, assignments={joined.member_id: b""}))
    peers, seen = Peers(), []

    def long_request() -> None:
        """Nothing else runs, as while a disk stands still; the member's heartbeat comes meanwhile."""
        if beats:
            member.send(b"h")
        time.sleep(SESSION_MS / 1000 + 0.1)

    try:
        member = await peers.connect(lambda: seen.append(made.heartbeat("g", joined.member_id, None, 1)))
        other = await peers.connect(long_request)
        await asyncio.sleep(0.01)
        other.send(b"r")
        for _ in range(5):  # the first is over with the hold-up itself
            await asyncio.sleep(0.01)
        assert seen == ([ErrorCode.NONE] if beats else [])
        return made.describe("g").state
    finally:
        peers.close()
        await made.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_heartbeat_that_has_arrived_counts(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(state_after_a_hold_up(beats=True)) == "Stable"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_sent_none_is_out(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(state_after_a_hold_up(beats=False)) == "Empty"
