"""A listener that closes: it waits for the answers it owes, and for nothing else."""

import asyncio
from typing import Any, cast

import structlog
import uvloop

from logyard.broker.model import Endpoint
from logyard.broker.server.admission import Admission, Limits
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.listener import Listener

HEARTBEAT = 12
GRACE_S = 0.5


class Late:
    """Answers nothing until `answer` is set."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return False

    def __call__(self, session: Any, frame: memoryview) -> Any:
        return self.answer


async def listening() -> tuple[Listener, Admission, Late]:
    doors, late = Admission(Limits(), lambda: 0.0), Late()
    listener = Listener(Endpoint("L", "PLAINTEXT", "127.0.0.1", 0), doors)
    await listener.serve(cast(Dispatcher, late))
    return listener, doors, late


async def turns_to_connect() -> int:
    """How many turns of the loop lie between a connect and the connection's place at the door; a bit more."""
    listener, _, _ = await listening()
    opening = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", listener.port))
    turns = 0
    while not listener.connection_count:
        await asyncio.sleep(0)
        turns += 1
    _, writer = await opening
    writer.close()
    await listener.close()
    return turns + 10


async def close_after(turns: int) -> tuple[float, int]:
    """Connect, and close the listener so many turns of the loop later: how long that took, who is left."""
    loop = asyncio.get_running_loop()
    listener, doors, _ = await listening()
    opening = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", listener.port))
    for _ in range(turns):
        await asyncio.sleep(0)
    begun = loop.time()
    await listener.close(grace_s=GRACE_S)
    took = loop.time() - begun
    _, writer = await opening
    writer.close()
    return took, listener.connection_count + len(doors)


def test_a_connection_that_is_just_being_taken_does_not_hold_up_the_close() -> None:
    """On uvloop, as in a broker: it says nothing of a connection whose taking is cancelled."""

    async def at_every_turn() -> list[int]:
        outcomes = [await close_after(turns) for turns in range(await turns_to_connect())]
        return [turns for turns, (took, left) in enumerate(outcomes) if took >= GRACE_S or left]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(at_every_turn()) == []


async def test_what_is_owed_is_answered_before_the_close() -> None:
    listener, _, late = await listening()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"\0\0\0\2" + HEARTBEAT.to_bytes(2, "big"))
    async with asyncio.timeout(20):
        while not any(connection.busy for connection in listener.connections):
            await asyncio.sleep(0.005)
        closing = asyncio.ensure_future(listener.close(grace_s=20.0))
        await asyncio.sleep(0.05)
        assert not closing.done()
        late.answer.set_result(b"answer")
        await closing
        assert await reader.read() == b"answer"
    writer.close()


async def test_the_log_names_what_was_owed_when_the_grace_is_over() -> None:
    listener, _, _ = await listening()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"\0\0\0\2" + HEARTBEAT.to_bytes(2, "big"))
    async with asyncio.timeout(20):
        while not any(connection.busy for connection in listener.connections):
            await asyncio.sleep(0.005)
        with structlog.testing.capture_logs() as lines:
            await listener.close(grace_s=0.05)
        assert await reader.read() == b""
    writer.close()
    (line,) = [line for line in lines if line["event"] == "connection cut off, stopping"]
    assert line["owed"] == [HEARTBEAT]
