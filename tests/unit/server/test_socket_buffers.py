"""What the system keeps of answers that a peer has not taken, and of requests that the broker has not read
(`socket.send.buffer.bytes`, `socket.receive.buffer.bytes`)."""

import asyncio
import os
import socket
import stat
from contextlib import suppress
from typing import Any, cast

import pytest
import uvloop

from logyard.broker.config.keys import KEYS
from logyard.broker.model import Endpoint
from logyard.broker.server.admission import Admission, Limits
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.listener import Buffers, Listener


class Silent:
    """Answers nothing."""

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return False


def of_peer(address: Any, option: int) -> list[int]:
    """An option of this process's sockets that are connected to an address."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed by now, or no socket with a peer
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.getpeername() == address:
                    found.append(sock.getsockopt(socket.SOL_SOCKET, option))
    return found


async def kept(option: int, wanted: int) -> int:
    admission = Admission(Limits(), lambda: 0.0)
    buffers = Buffers(wanted, 0) if option == socket.SO_SNDBUF else Buffers(0, wanted)
    listener = Listener(Endpoint("L", "PLAINTEXT", "127.0.0.1", 0), admission, buffers=buffers)
    await listener.serve(cast(Dispatcher, Silent()))
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    while not listener.connection_count:
        await asyncio.sleep(0.001)
    (found,) = of_peer(writer.get_extra_info("sockname"), option)
    writer.close()
    await listener.close()
    return found


BUFFERS = pytest.mark.parametrize("option", [socket.SO_SNDBUF, socket.SO_RCVBUF])


@BUFFERS
@pytest.mark.parametrize("wanted", [102_400, 60_000])
def test_a_connection_has_the_buffer_that_is_set(option: int, wanted: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(kept(option, wanted)) == 2 * wanted  # Linux doubles it, for what it needs beside the bytes


@BUFFERS
@pytest.mark.parametrize("wanted", [-1, 0])
def test_else_the_system_chooses(option: int, wanted: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(kept(option, wanted)) not in (2 * wanted, 0)


def test_two_segments_of_loopback_fit_into_what_is_sent() -> None:
    """A reader that gets one of 64 KB alone confirms it 40 ms later, and nothing can be sent until then."""
    largest_segment, by_default = 65_483, KEYS["socket.send.buffer.bytes"].default
    assert isinstance(by_default, int)
    assert by_default > 2 * largest_segment
