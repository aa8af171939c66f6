"""Sensors for transactions."""

from collections.abc import Sequence
from typing import Any

from logyard.operators.fields import as_integer, as_names
from logyard.operators.sensors.cluster import ClusterSensor
from logyard.operators.triggers.base import ClusterTrigger
from logyard.operators.triggers.transactions import NoHangingTransactionsTrigger


class NoHangingTransactionsSensor(ClusterSensor):
    """No transaction hangs: one that is open on a partition, and that no coordinator will end.

    As long as one hangs, who reads committed records only does not get past it.

    :param topics: topics, a list or its JSON; empty: all topics. (templated)
    :param idle_minutes: for how long nothing was written in a hanging transaction; at least the brokers'
        `transaction.max.timeout.ms`. (templated)
    """

    template_fields = ("topics", "idle_minutes", "logyard_conn_id")

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        idle_minutes: int | str = 15,
        poke_interval: float = 60.0,
        **kwargs: Any,
    ) -> None:
        # Each look asks the leader of every partition.
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.topics = topics
        self.idle_minutes = idle_minutes

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        return NoHangingTransactionsTrigger(
            topics=as_names("topics", self.topics) or None,
            idle_minutes=as_integer("idle_minutes", self.idle_minutes, 0),
            **waiting,
        )
