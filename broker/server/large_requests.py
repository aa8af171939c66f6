"""Decodes large requests in a thread, and bounds what all of them together take in memory until they are answered.

Rule 1: a small element becomes objects of many times its size, and an answer about it: who sends requests of
        `socket.request.max.bytes` full of them could fill the memory, and all threads of the disk's pool. Such requests
        are decoded one after the other, each up to a bound (protocol/codec.py), while those that were decoded before
        and are not answered leave room.
        Shorter ones have room of their own, in which some are decoded at a time: a thousand connections with 0.9 MB
        each would take 50 GB together, and may not be kept waiting by the large ones.
Rule 2: the controller's requests and those of other brokers wait for no client's.
Rule 3: what is not answered for a minute, a shorter one for five seconds, waits for something that its client chose (a
        member of its group, the end of a topic) and no longer counts: else a few such requests would keep out
        everybody's for as long.
Rule 4: what waits holds the request's bytes, as they came: it ends as soon as its client is gone. Else who connects,
        sends and leaves again and again would fill the memory while others wait for a slow answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec
from logyard.broker.replication.replicas import Replicas
from logyard.broker.server.request import Request, Session
from logyard.broker.server.turns import in_thread

# Longer ones are large. A megabyte becomes 60 MB at most.
LARGE_BYTES = 1024 * 1024
# What one may take: a client names less than a million things, a controller at most half a million partitions.
CLIENT_BYTES = 256 * 1024 * 1024
BROKER_BYTES = 512 * 1024 * 1024
# What large ones may have taken when another is decoded. Their answers take as much again, or twice as much.
LARGE_TAKEN_BYTES = CLIENT_BYTES
# The same of shorter ones; as many as are decoded at a time may come on top.
SHORTER_TAKEN_BYTES = 128 * 1024 * 1024
SHORTER_AT_ONCE = 4
COUNTED_S = 60.0
# A member of a group waits with a request of this size as a rule: it must not keep others' out for so long.
SHORTER_COUNTED_S = 5.0


class _Room:
    """Bounds what requests of one kind take: `at_once` are decoded at a time, once others have taken no more than
    `taken_max`. One counts until it is answered, for `counted_s` seconds at most."""

    def __init__(self, at_once: int, taken_max: int, counted_s: float) -> None:
        self.used = 0
        self._counted_s = counted_s
        self._taken_max = taken_max
        self._turns = asyncio.Semaphore(at_once)
        self._freed = asyncio.Event()

    async def decode(self, session: Session, work: Callable[[], Awaitable[tuple[Any, int]]]) -> Any:
        """Return what `work` decodes, when there is room; raises CorruptData if the client is gone."""
        if session.is_gone:
            raise CorruptData("the client is gone")
        with _while_there(session):
            await self._turns.acquire()
            try:
                while self.used > self._taken_max:
                    self._freed.clear()
                    await self._freed.wait()
            except BaseException:
                self._turns.release()
                raise
        try:
            return self.counted(*await work())
        finally:
            self._turns.release()

    def counted(self, message: Any, size: int) -> Any:
        """Count `size` until the current task ends, or for `counted_s` seconds at most; return the message."""
        task = asyncio.current_task()
        assert task is not None
        self.used += size

        def free() -> None:
            nonlocal size
            self.used, size = self.used - size, 0
            self._freed.set()

        def ended(_: object) -> None:
            timer.cancel()
            free()

        timer = asyncio.get_running_loop().call_later(self._counted_s, free)
        task.add_done_callback(ended)
        return message


class LargeRequests:
    """See the head of this file."""

    def __init__(self) -> None:
        self._large = _Room(1, LARGE_TAKEN_BYTES, COUNTED_S)
        self._shorter = _Room(SHORTER_AT_ONCE, SHORTER_TAKEN_BYTES, SHORTER_COUNTED_S)

    @property
    def used(self) -> int:
        """About how many bytes the decoded requests take that are not answered yet."""
        return self._large.used + self._shorter.used

    async def decode(self, replicas: Replicas, request: Request, *, waits: bool) -> Any:
        """Decode the request; it counts until the task that calls this ends. That of another broker never `waits`.

        Raises CorruptData, also for one that would take too much.
        """
        key, version, body = request.api_key, request.api_version, request.body
        room = self._large if len(body) > LARGE_BYTES else self._shorter
        decode = partial(codec.decode_large_request, key, version, body, CLIENT_BYTES if waits else BROKER_BYTES)
        work = partial(in_thread, replicas, decode)
        if not waits:
            message, size = await work()
            # A short one takes no room of clients: its broker may send very many, and is trusted.
            return self._large.counted(message, size) if room is self._large else message
        return await room.decode(request.session, work)


@contextmanager
def _while_there(session: Session) -> Iterator[None]:
    """Cancel this task, which answers a request of the session, if its connection is lost meanwhile."""
    task, before = asyncio.current_task(), session.gone
    assert task is not None

    def gone() -> None:
        before()
        task.cancel()

    session.gone = gone
    try:
        yield
    finally:
        if session.gone is gone:
            session.gone = before
