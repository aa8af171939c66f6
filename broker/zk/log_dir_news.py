"""Has the controller look at this broker's replicas, by /log_dir_event_notification (facts §9).

The controller sends LeaderAndIsr for all of them, and learns from the answers which are offline. So it is told where a
log directory has failed, and where logs can be opened that could not be before.

Rule: what ZooKeeper refuses is tried again until it succeeds: a controller that is not told lets clients wait for a
leader that has no log. A session that ends is different: the next one registers this broker anew, and the controller
sends all orders anyway.
"""

import asyncio

import structlog

from logyard.broker import tasks
from logyard.broker.errors import LogyardError
from logyard.broker.znodes import log_dir_events
from logyard.broker.znodes.ops import Create, SessionExpired, ZooKeeper

log = structlog.get_logger("logyard.broker")


class LogDirNews:
    """See the head of this file."""

    def __init__(self, zk: ZooKeeper, broker_id: int) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._is_due = False
        self._task: asyncio.Task[None] | None = None

    def tell(self) -> None:
        """Write the notification, soon; for all that is told until then one is enough."""
        self._is_due = True
        if self._task is None or self._task.done():
            self._task = tasks.keep("log directory news", self._write)

    def close(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _write(self) -> None:
        notice = Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(self._broker_id), sequential=True)
        while self._is_due:
            self._is_due = False
            try:
                (written,) = await self._zk.multi([notice])
                if not written.ok:
                    raise LogyardError(f"the controller cannot be told of the log directories: {written.code.value}")
            except SessionExpired:
                log.warning("the new session will tell the controller of the log directories")
            except BaseException:
                self._is_due = True
                raise
