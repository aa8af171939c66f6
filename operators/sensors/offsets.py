"""Sensors for offsets: a group has caught up, a topic has been written up to an offset."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context, PokeReturnValue

from logyard.admin.settings import BadSettings
from logyard.operators.fields import as_integer, as_mapping, as_names
from logyard.operators.sensors.cluster import ClusterSensor
from logyard.operators.triggers.base import ClusterTrigger
from logyard.operators.triggers.offsets import ConsumerLagBelowTrigger, OffsetsReachedTrigger, beyond_line


class ConsumerLagBelowSensor(ClusterSensor):
    """A group's lag, summed over its partitions, is at most `max_lag`: so many records are left to read.

    Records that retention has deleted cannot be read, and do not count: a commit before a log's first offset counts
    from there. `kafka-consumer-groups` counts them, since its lag is the end less the commit; so this sensor is never
    behind what the tool shows, and may be before it. A consumer with `auto.offset.reset=latest` reads less still.

    A commit beyond the end of its log counts as no lag, where the tool shows a negative one: records were lost, or the
    topic was made anew. The log warns of it, and `beyond_end` in the result says by how many records, by partition.

    :param group: the group; the sensor also waits for its first commit. (templated)
    :param max_lag: the most records that may be left to read. Partitions of `topics` without a commit count from their
        first record. (templated)
    :param topics: topics that count, a list or its JSON; empty: those that the group has committed for. (templated)
    """

    template_fields = ("group", "topics", "max_lag", "logyard_conn_id")

    def __init__(
        self, *, group: str, max_lag: int | str = 0, topics: Sequence[str] | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.max_lag = max_lag
        self.topics = topics

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        return ConsumerLagBelowTrigger(
            group=self.group,
            topics=as_names("topics", self.topics) or None,
            max_lag=as_integer("max_lag", self.max_lag, 0),
            **waiting,
        )

    def poke(self, context: Context) -> PokeReturnValue:
        found = super().poke(context)
        self._warn(found.xcom_value)
        return found

    def execute_complete(self, context: Context, event: dict[str, Any] | None) -> dict[str, Any]:
        found = super().execute_complete(context, event)
        self._warn(found)
        return found

    def _warn(self, found: Mapping[str, Any] | None) -> None:
        if found is not None and "beyond_end" in found:
            self.log.warning("group %s: %s", self.group, beyond_line(found["beyond_end"]))


class OffsetsReachedSensor(ClusterSensor):
    """Partitions of a topic have been written up to given offsets.

    :param topic: the topic. (templated)
    :param offsets: one offset for every partition, or partition → offset as a mapping or its JSON: the end offset
        (the next record's) must be at least that. (templated)
    """

    template_fields = ("topic", "offsets", "logyard_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"offsets": "json"}

    def __init__(self, *, topic: str, offsets: Mapping[Any, int] | int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.offsets = offsets

    def trigger(self, **waiting: Any) -> ClusterTrigger:
        return OffsetsReachedTrigger(topic=self.topic, offsets=self._wanted(), **waiting)

    def _wanted(self) -> dict[str, int]:
        text = str(self.offsets).strip()
        if text.isdecimal():
            return {"*": int(text)}
        given = as_mapping("offsets", self.offsets)  # type: ignore[arg-type]  # a number was seen above
        wanted = {str(p): as_integer(f"offsets[{p}]", offset, -1) for p, offset in given.items()}
        if not wanted or not all(p == "*" or p.isdecimal() for p in wanted) or min(wanted.values()) < 0:
            raise BadSettings(f"offsets {self.offsets!r}: expected an offset, or partition → offset")
        return wanted
