"""Consumer groups: set their offsets, delete them."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.groups.offset_reset import OffsetChange, Target, plan_reset, require_idle, settle
from logyard.admin.ports import ClusterClient, DescribingClient
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators import outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_mapping, as_names, as_natural
from logyard.operators.planned import as_plan, refuse_another_cluster

_STORED_TARGET = "logyard_reset_offsets"
_STORED_GROUPS = "logyard_deleted_groups"
_FIRST = "at the first try"


class StaleOffsets(LogyardError):
    """The group committed other offsets since the plan was made, or since the first try; the text names the first."""


class ResetOffsetsOperator(ClusterOperator):
    """Set the committed offsets of a group without members; offsets that are right already do not change.

    A dry run returns the changes. Passed on as `plan`, exactly these are made, unless the group has committed other
    offsets since (StaleOffsets), or the connection leads to another cluster since.

    A retry continues where the last try ended: a shift is calculated once, so it is never applied twice. If the group
    has committed other offsets since that try, it sets none (StaleOffsets). A task that is cleared begins anew.

    :param group: the group; setting offsets creates one that does not exist. (templated)
    :param topics: topics, a list or its JSON; empty: those that the group has committed offsets for. (templated)
    :param to: `earliest`, `latest`, `current`, an offset (`42`), a shift (`+5`, `-5`) or a time in ISO 8601 (the first
        record at that time or later). Offsets outside a partition's log are moved to its nearest end. (templated)
    :param offsets: instead of `to`: topic → partition → offset, a mapping or its JSON. (templated)
    :param plan: instead of both: the result of a dry run, or its JSON. (templated)
    """

    tells = staticmethod(outcomes.offsets_reset)
    template_fields = ("group", "topics", "to", "offsets", "plan", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"offsets": "json", "plan": "json"}

    def __init__(
        self,
        *,
        group: str,
        to: str | int | None = None,
        topics: Sequence[str] | str | None = None,
        offsets: Mapping[str, Mapping[Any, int]] | str | None = None,
        plan: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.to = to
        self.topics = topics
        self.offsets = offsets
        self.plan = plan
        self._has_plan = bool(plan)

    def execute(self, context: Context) -> dict[str, Any]:
        if not self.group:
            raise BadSettings("group: name the group")
        store, ti = context.get("task_state_store"), context["ti"]
        stored: Any = store.get(_STORED_TARGET) if store is not None else None
        # Of another `max_tries`: the task was cleared since, to do it again.
        earlier = stored if isinstance(stored, dict) and stored.get("max_tries") == ti.max_tries else None
        with self.hook.client() as client:
            require_idle(client, self.group)
            cluster_id = client.snapshot([]).cluster_id
            changes = self._changes(client, earlier, cluster_id)
            for change in changes:
                self.log.info("group %s, %s: %s to %d", self.group, change.tp, change.before, change.after)
            if changes and not self.checks_only:
                if store is not None:
                    store.set(_STORED_TARGET, {**self._plan(changes, cluster_id), "max_tries": ti.max_tries})
                client.alter_group_offsets(self.group, {change.tp: change.after for change in changes})
        if store is not None and store.get(_STORED_TARGET) is not None:
            store.delete(_STORED_TARGET)
        return {**self._plan(changes, cluster_id), "dry_run": self.checks_only}

    def _plan(self, changes: Sequence[OffsetChange], cluster_id: str) -> dict[str, Any]:
        return {
            "group": self.group,
            "cluster_id": cluster_id,
            "changed": {str(c.tp): {"before": c.before, "after": c.after} for c in changes},
        }

    def _changes(self, client: ClusterClient, earlier: Mapping[str, Any] | None, cluster_id: str) -> list[OffsetChange]:
        """`earlier`: what an earlier try has calculated, and may have committed."""
        given = self._explicit()
        if earlier is not None:
            refuse_another_cluster(earlier, cluster_id, advice := "clear the task to calculate them anew", _FIRST)
            return self._planned(client, earlier, advice)
        if planned := as_plan(self.plan, is_given=self._has_plan):
            refuse_another_cluster(planned, cluster_id)
            return self._planned(client, planned, "plan again")
        if given:
            return settle(client, sorted(given), client.group_offsets(self.group), given)
        if self.to in (None, "", "None"):
            raise BadSettings("to: give the new offsets (earliest, latest, an offset, +N, -N, a time), or `offsets`")
        topics = as_names("topics", self.topics)
        return plan_reset(client, self.group, topics, Target.parse(str(self.to)))

    def _planned(self, client: ClusterClient, plan: Mapping[str, Any], advice: str) -> list[OffsetChange]:
        """The changes of a plan that are not made yet. Raises BadSettings, StaleOffsets."""
        try:
            if plan.get("group") != self.group:
                raise ValueError
            changes = {_partition(name): (one["before"], int(one["after"])) for name, one in plan["changed"].items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadSettings(f"plan: expected the result of a dry run for group {self.group}") from None
        wanted = {}
        committed = client.group_offsets(self.group)
        for tp, (before, after) in changes.items():
            if committed.get(tp) not in (before, after):
                raise StaleOffsets(
                    f"group {self.group}, {tp}: the committed offset is {committed.get(tp)} now, and was "
                    f"{before} when the plan was made: {advice}"
                )
            wanted[tp] = after
        return settle(client, sorted(wanted), committed, wanted)

    def _explicit(self) -> dict[TopicPartition, int]:
        given = as_mapping("offsets", self.offsets)
        return {
            TopicPartition(topic, as_natural(f"offsets of {topic}", partition)): as_natural(
                f"offsets of {topic}-{partition}", offset
            )
            for topic, partitions in given.items()
            for partition, offset in as_mapping(f"offsets of {topic}", partitions).items()
        }


class DeleteGroupsOperator(ClusterOperator):
    """Delete groups with the offsets that they have committed; those that do not exist are deleted already.

    If one of them has members, none is deleted (GroupInUse): a consumer that joins while the run works keeps its group.
    A retry deletes none either if one has committed other offsets since the first try (StaleOffsets): that may have
    deleted it, and this is another one of the name; or if the connection leads to another cluster since. A task that is
    cleared begins anew.

    :param groups: the groups, a list or its JSON. (templated)
    """

    tells = staticmethod(outcomes.groups_deleted)
    template_fields = ("groups", *ClusterOperator.template_fields)

    def __init__(self, *, groups: Sequence[str] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.groups = groups

    def execute(self, context: Context) -> dict[str, Any]:
        names = sorted(set(as_names("groups", self.groups)))
        if not names:
            raise BadSettings("groups: name at least one")
        with self.hook.client() as client:
            for name in names:
                require_idle(client, name)
            commits = {name: client.group_offsets(name) for name in names}
            offsets = {name: len(found) for name, found in commits.items()}
            there = {view.group_id for view in client.groups()}
            if not self.checks_only:
                found = {name: _digest(commits[name]) for name in names if name in there}
                self._remember(context, found, client.snapshot([]).cluster_id)
            deleted = [name for name in names if name in there and (self.checks_only or _delete(client, name))]
        store = context.get("task_state_store")
        if store is not None and store.get(_STORED_GROUPS) is not None:
            store.delete(_STORED_GROUPS)
        for name in deleted:
            self.log.info("group %s: %d committed offsets", name, offsets[name])
        return {
            "deleted": [{"group": name, "offsets": offsets[name]} for name in deleted],
            "missing": [name for name in names if name not in deleted],
            "dry_run": self.checks_only,
        }

    def _remember(self, context: Context, found: Mapping[str, str], cluster_id: str) -> None:
        """Keep what the groups have committed before they are deleted. Raises StaleOffsets, BadSettings."""
        store, max_tries = context.get("task_state_store"), context["ti"].max_tries
        if store is None:
            return
        stored: Any = store.get(_STORED_GROUPS)
        is_ours = isinstance(stored, dict) and stored.get("max_tries") == max_tries
        earlier: dict[str, str] = stored["groups"] if is_ours else {}
        refuse_another_cluster(stored if is_ours else {}, cluster_id, "clear the task to delete them there", _FIRST)
        others = [name for name, digest in found.items() if earlier.get(name, digest) != digest]
        if others:
            raise StaleOffsets(
                f"group {others[0]} has committed other offsets since the first try of this task, which may have "
                "deleted it before: no group is deleted; clear the task to delete what is there now"
            )
        kept: Any = {"groups": {**found, **earlier}, "max_tries": max_tries, "cluster_id": cluster_id}
        store.set(_STORED_GROUPS, kept)


def _digest(commits: Mapping[TopicPartition, int]) -> str:
    """What two lots of commits have in common only if they are the same; short, however many there are."""
    return hashlib.sha256(repr(sorted(commits.items())).encode()).hexdigest()


def _delete(client: DescribingClient, name: str) -> bool:
    """False where it is gone already."""
    try:
        client.delete_group(name)
    except ApiError as problem:
        if problem.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    return True


def _partition(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))
