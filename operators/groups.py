"""Consumer groups: set their offsets."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.offset_reset import OffsetChange, Target, plan_reset, require_idle, settle
from logyard.admin.ports import ClusterClient
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators.base import ClusterOperator, as_integer, as_list, as_mapping

_STORED_TARGET = "logyard_reset_offsets"


class ResetOffsetsOperator(ClusterOperator):
    """Set the committed offsets of a group that has no members; what is as wanted already stays.

    A try that died is gone on with where it was: a shift is worked out once and not done twice.

    :param group: the group; one that does not exist yet is made by its offsets. (templated)
    :param topics: topics, a list or its JSON; those that the group committed offsets for where empty. (templated)
    :param to: `earliest`, `latest`, `current`, an offset (`42`), a shift (`+5`, `-5`) or a time in ISO 8601: the first
        record of that time or after. Offsets outside a partition's log are brought inside it. (templated)
    :param offsets: instead of `to`: topic → partition → offset, a mapping or its JSON. (templated)
    """

    template_fields = ("group", "topics", "to", "offsets", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"offsets": "json"}

    def __init__(
        self,
        *,
        group: str,
        to: str | int | None = None,
        topics: Sequence[str] | str | None = None,
        offsets: Mapping[str, Mapping[Any, int]] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.to = to
        self.topics = topics
        self.offsets = offsets

    def execute(self, context: Context) -> dict[str, Any]:
        store = context.get("task_state_store")
        with self.hook.client() as client:
            require_idle(client, self.group)
            changes = self._changes(client, store.get(_STORED_TARGET) if store is not None else None)
            for change in changes:
                self.log.info("group %s, %s: %s to %d", self.group, change.tp, change.before, change.after)
            if changes and not self.checks_only:
                if store is not None:
                    store.set(_STORED_TARGET, {_key(change.tp): change.after for change in changes})
                client.alter_group_offsets(self.group, {change.tp: change.after for change in changes})
        if store is not None and store.get(_STORED_TARGET) is not None:
            store.delete(_STORED_TARGET)
        self.log.info("group %s: %d offsets %s", self.group, len(changes), "to set" if self.checks_only else "set")
        return {
            "group": self.group,
            "changed": {str(c.tp): {"before": c.before, "after": c.after} for c in changes},
            "dry_run": self.checks_only,
        }

    def _changes(self, client: ClusterClient, stored: Any) -> list[OffsetChange]:
        given = self._explicit()
        if isinstance(stored, dict):  # an earlier try worked them out, and may have committed them
            given = {_partition(key): int(offset) for key, offset in stored.items()}
        if given:
            return settle(client, sorted(given), client.group_offsets(self.group), given)
        if self.to in (None, "", "None"):
            raise BadSettings(
                "to: say where the offsets go (earliest, latest, an offset, +N, -N, a time), or `offsets`"
            )
        topics = [str(topic) for topic in as_list("topics", self.topics)]
        return plan_reset(client, self.group, topics, Target.parse(str(self.to)))

    def _explicit(self) -> dict[TopicPartition, int]:
        given = as_mapping("offsets", self.offsets)
        return {
            TopicPartition(topic, int(partition)): as_integer(f"offsets of {topic}-{partition}", offset, 0)
            for topic, partitions in given.items()
            for partition, offset in as_mapping(f"offsets of {topic}", partitions).items()
        }


def _key(tp: TopicPartition) -> str:
    return f"{tp.topic}/{tp.partition}"


def _partition(key: str) -> TopicPartition:
    topic, _, partition = key.rpartition("/")
    return TopicPartition(topic, int(partition))
