"""Sensors on a cluster. Each makes a trigger: poking and deferring use its condition."""

import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from logyard.admin.cluster.observation import observe
from logyard.admin.errors import LogyardError
from logyard.admin.reassignment.plan import Plan
from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import AirflowSensorTimeout, conf
from logyard.operators.failures import TaskRefused, failing_for_good, skipped_if_asked
from logyard.operators.fields import as_integer, as_list, as_names, as_natural, as_number
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.links import ClusterPageLink
from logyard.operators.triggers.base import FAILED, TIMEOUT, ClusterTrigger, WaitEvent, WaitFailed
from logyard.operators.triggers.cluster import (
    BrokersUpTrigger,
    ControllerElectedTrigger,
    FullyReplicatedTrigger,
    ReassignmentDoneTrigger,
    TopicReadyTrigger,
)

_NEVER_S = 3600.0


class ClusterSensor(BaseSensorOperator):
    """Wait for a condition of a cluster.

    :param logyard_conn_id: the connection. (templated)
    :param deferrable: wait in the triggerer.
    """

    template_fields: Sequence[str] = ("logyard_conn_id",)
    operator_extra_links = (ClusterPageLink(),)
    ui_color = "#dfe9e4"

    def __init__(
        self,
        *,
        logyard_conn_id: str = ClusterHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: float = 2.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.logyard_conn_id = logyard_conn_id
        self.deferrable = deferrable
        self._looks_by: ClusterTrigger | None = None

    @abstractmethod
    def trigger(self, **waiting: Any) -> ClusterTrigger:
        """The trigger that waits for the condition, made with these common arguments."""

    @failing_for_good
    def poke(self, context: Context) -> PokeReturnValue:
        # One trigger for all pokes: it may measure for how long the condition has held.
        self._looks_by = self._looks_by or self._trigger()
        try:
            with ClusterHook(self.logyard_conn_id).client() as client:
                seen = observe(client, self._looks_by.wants())
        except Exception:
            self._looks_by.unseen()
            raise
        try:
            values = self._looks_by.result(seen)
        except WaitFailed as problem:
            raise TaskRefused(str(problem)) from None
        if values is None:
            self.log.info("waiting for %s", self._looks_by.missing(seen))
        return PokeReturnValue(values is not None, values)

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        first = self._first_poke(context)
        if first:
            return first.xcom_value
        return self.defer(
            trigger=self._trigger(),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout + 60),
        )

    def execute_complete(self, context: Context, event: dict[str, Any] | None) -> dict[str, Any]:
        """Return what the trigger has found. Raises AirflowSensorTimeout, AirflowFailException as a poke does.

        Airflow ends the task at both, without another try, or skips it with `soft_fail`.
        """
        if event is not None and event.get("status") == TIMEOUT:
            raise AirflowSensorTimeout(str(event.get("message")))
        if event is not None and event.get("status") == FAILED:
            raise TaskRefused(str(event.get("message")))
        return WaitEvent.from_event(event)

    def _first_poke(self, context: Context) -> PokeReturnValue:
        """Poke as Airflow's own loop does, which a deferrable sensor does not enter."""
        try:
            with skipped_if_asked(self):
                return self.poke(context)
        except LogyardError as problem:
            if not self.silent_fail:
                raise
            self.log.error("the first look failed, waiting on: %s", problem)
            return PokeReturnValue(is_done=False)

    def _trigger(self) -> ClusterTrigger:
        return self.trigger(
            logyard_conn_id=self.logyard_conn_id,
            poll_interval_s=self.poke_interval,
            deadline_ms=round((time.time() + self.timeout) * 1000),
        )


class TopicReadySensor(ClusterSensor):
    """A topic exists and every partition has a leader.

    :param topic: its name. (templated)
    :param partitions: the fewest partitions that it must have. (templated)
    """

    template_fields = ("topic", "partitions", "logyard_conn_id")

    def __init__(self, *, topic: str, partitions: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.partitions = partitions

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        partitions = as_integer("partitions", self.partitions, -1)
        return TopicReadyTrigger(topic=self.topic, partitions=partitions if partitions > 0 else None, **waiting)


class UnderReplicatedPartitionsSensor(ClusterSensor):
    """No partition is without a leader or under-replicated, for `hold_s` seconds without interruption. A look that the
    cluster does not answer is one.

    The sensor counts these seconds itself: in mode "reschedule" they would begin anew at every poke.

    :param topics: topics, a list or its JSON; empty: all topics. (templated)
    :param hold_s: seconds for which the condition must hold; 0: one poke is enough. (templated)
    """

    template_fields = ("topics", "hold_s", "logyard_conn_id")

    def __init__(self, *, topics: Sequence[str] | str | None = None, hold_s: float | str = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.hold_s = hold_s

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        hold_s = as_number("hold_s", self.hold_s)
        if hold_s and self.reschedule and not self.deferrable:
            raise BadSettings(
                'hold_s needs mode "poke" or deferrable=True: in mode "reschedule" nothing is kept between two pokes'
            )
        topics = as_names("topics", self.topics) or None
        return FullyReplicatedTrigger(topics=topics, hold_s=hold_s, **waiting)


class ControllerElectedSensor(ClusterSensor):
    """A live broker is the controller, as it says itself; what another broker says of it may be out of date.

    :param other_than: a broker that does not count as the controller. (templated)
    """

    template_fields = ("other_than", "logyard_conn_id")

    def __init__(self, *, other_than: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.other_than = other_than

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        other = as_integer("other_than", self.other_than, -1)
        return ControllerElectedTrigger(other_than=other if other >= 0 else None, **waiting)


class BrokerUpSensor(ClusterSensor):
    """Brokers are registered; the controller's broker has to say so too, as another may not have heard of their end.

    :param brokers: their ids, a list or its JSON. (templated)
    """

    template_fields = ("brokers", "logyard_conn_id")

    def __init__(self, *, brokers: Sequence[int] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.brokers = brokers

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        return BrokersUpTrigger(brokers=[as_natural("brokers", b) for b in as_list("brokers", self.brokers)], **waiting)


class ReassignmentDoneSensor(ClusterSensor):
    """The moves of a plan have ended. A target broker that is away is waited for until the sensor's time is over.

    :param plan: a plan document. (templated)
    """

    template_fields = ("plan", "logyard_conn_id")

    def __init__(self, *, plan: dict[str, Any] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        plan = Plan.from_json(self.plan)
        moves = [move.as_json() for move in plan.moves]
        patience_s = self.timeout + _NEVER_S  # a trigger that gives up has a result, as one that is done
        return ReassignmentDoneTrigger(moves=moves, broker_patience_s=patience_s, **waiting, cluster_id=plan.cluster_id)
