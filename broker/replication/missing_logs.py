"""Replicas without a log, because this process had no file descriptor left to open one.

The controller is answered KAFKA_STORAGE_ERROR, takes such a replica for one on a failed directory, and has it stopped.
It sends no other order for it, unless it is asked to look at this broker's replicas again.

Rule: a log is tried again every LATER_S. Once one can be opened the controller is asked (`opened`), which then sends an
order for each replica: those that fail again are noted again. The orders that failed are not carried out later: they
are old by then, and their leader epochs with them.
"""

from collections.abc import Callable

import structlog

from logyard.broker.errors import StorageError
from logyard.broker.event_loop import TimerHandle
from logyard.broker.log import layout
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.replication.events import LeaderAndIsrPartition
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.partition import Partition

LATER_S = 10.0

log = structlog.get_logger("logyard.replication")


class MissingLogs:
    """See the rule at the head of this file. `opened()` is called on the event loop."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._orders: dict[TopicPartition, tuple[LeaderAndIsrPartition, TopicId | None]] = {}
        self._timer: TimerHandle | None = None
        self.opened: Callable[[], None] = lambda: None

    def note(self, order: LeaderAndIsrPartition, topic_id: TopicId | None) -> None:
        """This order could not be carried out for want of a file descriptor."""
        self._orders[order.tp] = order, topic_id
        self._try_later()

    def forget(self, tp: TopicPartition) -> None:
        """The controller has sent another order, or the replica is deleted."""
        self._orders.pop(tp, None)

    def close(self) -> None:
        """Try no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try_later(self) -> None:
        if self._timer is None:
            self._timer = self._hosted.timers.call_later(LATER_S, self._try)

    def _try(self) -> None:
        """Open one log: the others are for the controller's orders, which take turns of the event loop."""
        self._timer = None
        if not self._orders:
            return
        order, topic_id = next(iter(self._orders.values()))
        partition = self._hosted.partitions.get(order.tp) or Partition(order.tp, self._hosted.ports)
        try:
            found = self._hosted.get_or_create_log(partition, topic_id, order.is_new)
            found.disk.open(found.segments.active.path(layout.LOG))  # one that was there has opened nothing
        except Exception as failed:
            if isinstance(failed, StorageError) and failed.is_passing:
                self._try_later()
                return
            # Whatever else it is, the order that is asked for will meet it, and be answered accordingly.
        log.info("logs can be opened again: the controller is asked for its orders", replicas=len(self._orders))
        self._orders.clear()
        self.opened()
