"""Decodes large requests in a thread, and bounds what all of them together take in memory until they are answered.

Rule 1: a small element becomes objects of many times its size, and an answer about it: who sends requests of
        `socket.request.max.bytes` full of them could fill the memory, and all threads of the disk's pool. Such requests
        are decoded one after the other, each up to a bound (protocol/codec.py), while those that were decoded before
        and are not answered leave room.
Rule 2: the controller's requests and those of other brokers wait for no client's.
Rule 3: what is not answered for a minute waits for something that its client chose (a member of its group, the end of
        a topic) and no longer counts: else two such requests would keep out everybody's large ones for as long.
Rule 4: what waits holds the request's bytes, as they came: it ends as soon as its client is gone. Else who connects,
        sends and leaves again and again would fill the memory while others wait for a slow answer.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec
from logyard.broker.replication.replicas import Replicas
from logyard.broker.server.request import Request, Session
from logyard.broker.server.turns import in_thread

# Smaller ones are not counted: a megabyte becomes 25 MB at most.
COUNTED_BYTES = 1024 * 1024
# What one may take: a client names less than a million things, a controller at most half a million partitions.
CLIENT_BYTES = 256 * 1024 * 1024
BROKER_BYTES = 512 * 1024 * 1024
# Their answers take as much again, or twice as much.
TOGETHER_BYTES = 2 * CLIENT_BYTES
COUNTED_S = 60.0


class LargeRequests:
    """See the head of this file."""

    def __init__(self) -> None:
        self._used = 0
        self._one_at_a_time = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def used(self) -> int:
        """About how many bytes the decoded requests take that are not answered yet."""
        return self._used

    async def decode(self, replicas: Replicas, request: Request, *, waits: bool) -> Any:
        """Decode the request; it counts until the task that calls this ends. That of another broker never `waits`.

        Raises CorruptData, also for one that would take too much.
        """
        key, version, body = request.api_key, request.api_version, request.body
        if len(body) <= COUNTED_BYTES:
            return await in_thread(replicas, partial(codec.decode_request, key, version, body))
        decode = partial(codec.decode_large_request, key, version, body, CLIENT_BYTES if waits else BROKER_BYTES)
        if not waits:
            return self._counted(*await in_thread(replicas, decode))
        if request.session.is_gone:
            raise CorruptData("the client is gone")
        with _while_there(request.session):
            await self._one_at_a_time.acquire()
            try:
                while self._used > TOGETHER_BYTES - CLIENT_BYTES:
                    self._freed.clear()
                    await self._freed.wait()
            except BaseException:
                self._one_at_a_time.release()
                raise
        try:
            return self._counted(*await in_thread(replicas, decode))
        finally:
            self._one_at_a_time.release()

    def _counted(self, message: Any, size: int) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._used += size

        def free() -> None:
            nonlocal size
            self._used, size = self._used - size, 0
            self._freed.set()

        def ended(_: object) -> None:
            timer.cancel()
            free()

        timer = asyncio.get_running_loop().call_later(COUNTED_S, free)
        task.add_done_callback(ended)
        return message


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
