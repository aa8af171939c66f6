"""A watch in a ZooKeeper session of its own, beside the broker's: of the ACLs, where they are in another ZooKeeper."""

import asyncio
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.zk.session_watches import SessionWatch
from logyard.broker.znodes.ops import SessionExpired

log = structlog.get_logger("logyard.zk")


class OwnSession:
    """One of `SessionWatches`; new sessions of the broker do not concern it.

    `zk` is a `ZooKeeper` with session callbacks, which nobody else uses. `name` is what the log calls it.
    """

    def __init__(self, name: str, zk: Any, watch: SessionWatch, timeout_s: float) -> None:
        self._name, self._zk, self._watch, self._timeout_s = name, zk, watch, timeout_s
        self._is_open = False
        self._restart: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and start the watch; the second time there is nothing to do.

        Raises ZooKeeperUnavailable, and what the watch's first load raises.
        """
        if self._is_open:
            return
        await self._zk.wait_connected(self._timeout_s)
        self._is_open = True
        self._zk.on_session_lost = self._lost
        self._zk.on_session_established = self._established
        await self._watch.start()

    async def renew(self) -> None:
        """Do nothing: this session's own callbacks start the watch again."""

    async def stop(self) -> None:
        """Stop the watch and end the session."""
        if self._restart is not None:
            self._restart.cancel()
        await self._watch.stop()
        self._zk.on_session_lost = _nothing
        await self._zk.close()

    def _lost(self) -> None:
        log.warning("a ZooKeeper session is lost", of=self._name)

    def _established(self, session_id: int) -> None:
        if self._restart is not None:
            self._restart.cancel()
        self._restart = tasks.keep(self._name, self._start_again)

    async def _start_again(self) -> None:
        try:
            await self._watch.start()
        except SessionExpired:
            return  # another session follows


def _nothing() -> None:
    return None
