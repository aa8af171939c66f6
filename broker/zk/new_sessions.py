"""What a broker does in each ZooKeeper session after its first: it registers, follows znodes, stands for controller.

Rule 1: what ZooKeeper refuses is tried again, after a pause, until it succeeds or the session ends: rights may be
        mended.
Rule 2: a watch that is refused keeps a broker neither from its other watches nor from standing for controller. Brokers
        have the same rights mostly: if all waited for them, there would be no controller.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from logyard.broker import tasks
from logyard.broker.zk.registration import BrokerIdTaken
from logyard.broker.znodes.ops import SessionExpired

log = structlog.get_logger("logyard.zk")


class Renewed(Protocol):
    """The watches of a broker."""

    async def renew(self) -> None: ...


class NewSessions:
    """Enters each new session; `fail` is told if another broker has this one's id."""

    def __init__(
        self,
        register: Callable[[], Awaitable[None]],
        watches: Renewed,
        stand: Callable[[], None],
        fail: Callable[[str], None],
    ) -> None:
        self._register, self._watches, self._stand, self._fail = register, watches, stand, fail
        self._task: asyncio.Task[None] | None = None
        self._has_registered = self._has_stood = False

    def take(self, session_id: int) -> None:
        """Enter a session; what was still to be done in the one before is given up."""
        self.close()
        self._has_registered = self._has_stood = False
        self._task = tasks.keep("new session", self._enter)

    def close(self) -> None:
        """Give up what is still to be done."""
        if self._task is not None:
            self._task.cancel()

    async def _enter(self) -> None:
        try:
            if not self._has_registered:
                await self._register()
                self._has_registered = True
            await self._follow()
        except SessionExpired:
            log.warning("the new session ended at once; another follows")
        except BrokerIdTaken as error:
            self._fail(str(error))

    async def _follow(self) -> None:
        """Set the watches, and stand once: afterwards, to have the newest settings where that is possible."""
        refused: Exception | None = None
        try:
            await self._watches.renew()
        except SessionExpired:
            raise
        except Exception as error:
            refused = error
        if not self._has_stood:
            self._has_stood = True
            self._stand()
        if refused is not None:
            raise refused
