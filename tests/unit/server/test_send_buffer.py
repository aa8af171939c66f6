"""What the system keeps of answers that a peer has not taken (`socket.send.buffer.bytes`)."""

import asyncio
import os
import socket
import stat
from contextlib import suppress
from typing import Any, cast

import pytest
import uvloop

from logyard.broker.model import Endpoint
from logyard.broker.server.admission import Admission, Limits
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.listener import Listener


class Silent:
    """Answers nothing."""

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return False


def of_peer(address: Any) -> list[int]:
    """SO_SNDBUF of this process's sockets that are connected to an address."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed by now, or no socket with a peer
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.getpeername() == address:
                    found.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
    return found


async def kept(wanted: int) -> int:
    admission = Admission(Limits(), lambda: 0.0)
    listener = Listener(Endpoint("L", "PLAINTEXT", "127.0.0.1", 0), admission, send_buffer_bytes=wanted)
    await listener.serve(cast(Dispatcher, Silent()))
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    while not listener.connection_count:
        await asyncio.sleep(0.001)
    (found,) = of_peer(writer.get_extra_info("sockname"))
    writer.close()
    await listener.close()
    return found


@pytest.mark.parametrize("wanted", [102_400, 60_000])
def test_a_connection_has_the_buffer_that_is_set(wanted: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(kept(wanted)) == 2 * wanted  # Linux doubles it, for what it needs beside the bytes


@pytest.mark.parametrize("wanted", [-1, 0])
def test_else_the_system_chooses(wanted: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(kept(wanted)) not in (2 * wanted, 0)
