"""Topics: create, alter, add partitions, delete, and delete records. Each operator is idempotent."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import EARLIEST, LATEST, ClusterClient
from logyard.admin.settings import BadSettings
from logyard.admin.topics.changes import (
    IfExists,
    TopicChanges,
    TopicConflict,
    apply_changes,
    differing,
    ensure_partitions,
    ensure_topic,
    plan_changes,
)
from logyard.admin.topics.difference import difference_lines
from logyard.broker.model import TopicPartition
from logyard.operators import lineages, outcomes, written_topics
from logyard.operators.base import ClusterOperator
from logyard.operators.earlier_topic import EarlierTopic
from logyard.operators.fields import as_config_text, as_integer, as_list, as_mapping, as_natural, as_truth
from logyard.operators.topic_names import once_free
from logyard.operators.triggers.base import WaitEvent
from logyard.operators.triggers.cluster import TopicGoneTrigger, TopicReadyTrigger


class TopicOperator(ClusterOperator):
    """A task on one topic.

    :param topic: the topic's name. (templated)
    """

    template_fields: Sequence[str] = ("topic", *ClusterOperator.template_fields)

    def __init__(self, *, topic: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic

    def finish(self, context: Context, event: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        """Resume after a deferral: return the result of the work if the wait succeeded."""
        return result | WaitEvent.from_event(event)

    def report_missing(self) -> dict[str, Any]:
        """The result of a dry run on a topic that does not exist; an earlier task of the run would have created it."""
        self.log.info("topic %s does not exist: nothing could be checked", self.topic)
        return {"topic": self.topic, "missing": True}

    def wait_ready(self, context: Context, result: dict[str, Any], partitions: int | None = None) -> dict[str, Any]:
        """Wait until every partition has a leader, then return `result` and the topic's partitions."""
        trigger = TopicReadyTrigger(topic=self.topic, partitions=partitions, **self.waiting())
        return result | self.wait(trigger, "finish", result=result)


class CreateTopicOperator(TopicOperator):
    """Create a topic and wait until every partition has a leader.

    While an earlier topic of the name is still being deleted, it waits for the end of that, in the worker.

    :param partitions: the number of partitions; -1 is the broker's default. (templated)
    :param replication_factor: replicas of each partition; -1 is the broker's default. (templated)
    :param configs: settings of the topic, a mapping or its JSON; those that are null are left out. (templated)
    :param assignment: instead of the two numbers, partition → list of brokers, which need not be alive. (templated)
    :param if_exists: `fail`, `skip`, or `reconcile`: log the differences, set what differs and add partitions. What
        cannot be made equal (fewer partitions, other replicas) makes the task fail after the rest is done; the error
        names it. (templated)
    :param allow_differences: with `reconcile`: succeed even if something could not be made equal; the result's
        `changes.refused` names it.
    :param wait_for_leaders: whether to wait for the leaders.
    """

    tells = staticmethod(outcomes.created)
    writes = staticmethod(written_topics.created)
    lineage = staticmethod(lineages.created)
    template_fields = (
        *TopicOperator.template_fields,
        "partitions",
        "replication_factor",
        "configs",
        "assignment",
        "if_exists",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"configs": "json", "assignment": "json"}

    def __init__(
        self,
        *,
        topic: str,
        partitions: int | str = -1,
        replication_factor: int | str = -1,
        configs: Mapping[str, Any] | str | None = None,
        assignment: Mapping[Any, Sequence[int]] | str | None = None,
        if_exists: str = "fail",
        allow_differences: bool = False,
        wait_for_leaders: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, **kwargs)
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.configs = configs
        self.assignment = assignment
        self.if_exists = if_exists
        self.allow_differences = allow_differences
        self.wait_for_leaders = wait_for_leaders

    def execute(self, context: Context) -> dict[str, Any]:
        wanted, if_exists = self.wanted(), _if_exists(self.if_exists)
        hook = self.hook
        with hook.client() as client:
            ensure = partial(self._ensure, client, wanted, if_exists)
            timeout_s = 0.0 if self.checks_only else self.wait_timeout_s
            changes = once_free(ensure, hook.pause(), self.poll_interval_s, timeout_s)
        result = {"topic": self.topic, "changes": changes.as_json(), "dry_run": self.checks_only}
        if self.checks_only or not self.wait_for_leaders:
            return result
        return self.wait_ready(context, result)

    def _ensure(self, client: ClusterClient, wanted: NewTopic, if_exists: IfExists, waited: bool) -> TopicChanges:
        if if_exists is IfExists.RECONCILE:
            return self._reconcile(client, wanted)
        if waited and if_exists is IfExists.FAIL:
            # There was none: what is there now, as it is wanted, may be from this task's own request.
            apply_changes(client, changes := TopicChanges(wanted.name, create=wanted))
            return changes
        return ensure_topic(client, wanted, if_exists, dry_run=self.checks_only)

    def _reconcile(self, client: ClusterClient, wanted: NewTopic) -> TopicChanges:
        """Log every difference, make the changes that can be made, then raise TopicConflict for the others."""
        found = client.witnessed([wanted.name]).topics.get(wanted.name)
        configs = client.topic_configs(wanted.name) if found else {}
        changes = plan_changes(wanted, found, configs)
        for line in difference_lines(changes, found, configs):
            self.log.info("topic %s: %s", self.topic, line)
        if found is None:  # ensure_topic also handles a topic that somebody creates meanwhile
            return ensure_topic(client, wanted, IfExists.RECONCILE, dry_run=self.checks_only)
        apply_changes(client, changes, dry_run=self.checks_only)
        if changes.refused and not (self.allow_differences or self.checks_only):
            raise TopicConflict(f"topic {wanted.name}: " + "; ".join(changes.refused))
        return changes

    def wanted(self) -> NewTopic:
        """The topic as the fields describe it. Raises BadSettings."""
        assignment, configs = as_mapping("assignment", self.assignment), as_mapping("configs", self.configs)
        return NewTopic(
            name=self.topic,
            partitions=as_integer("partitions", self.partitions, -1),
            replication_factor=as_integer("replication_factor", self.replication_factor, -1),
            configs={key: as_config_text(value) for key, value in configs.items() if value is not None},
            assignment={
                as_natural("assignment", p): tuple(as_natural("assignment", b) for b in as_list("assignment", replicas))
                for p, replicas in assignment.items()
            }
            or None,
        )


class AlterTopicOperator(TopicOperator):
    """Set and unset settings of a topic; those that are right already do not change.

    :param configs: settings to set, a mapping or its JSON; null unsets. (templated)
    """

    tells = staticmethod(outcomes.created)
    writes = staticmethod(written_topics.created)
    lineage = staticmethod(lineages.created)
    template_fields = (*TopicOperator.template_fields, "configs")
    template_fields_renderers: ClassVar[dict[str, str]] = {"configs": "json"}

    def __init__(self, *, topic: str, configs: Mapping[str, Any] | str, **kwargs: Any) -> None:
        super().__init__(topic=topic, **kwargs)
        self.configs = configs

    def execute(self, context: Context) -> dict[str, Any]:
        given = as_mapping("configs", self.configs)
        wanted = {key: as_config_text(value) for key, value in given.items() if value is not None}
        with self.hook.client() as client:
            if self.checks_only and self.topic not in client.witnessed([self.topic]).topics:
                return self.report_missing()
            found = client.topic_configs(self.topic)
            unset = [key for key, value in given.items() if value is None and key in found and found[key].is_override]
            changes = TopicChanges(self.topic, set_configs=differing(wanted, found), delete_configs=unset)
            for line in difference_lines(changes, None, found):
                self.log.info("topic %s: %s", self.topic, line)
            apply_changes(client, changes, dry_run=self.checks_only)
        return {"topic": self.topic, "changes": changes.as_json()}


class AddPartitionsOperator(TopicOperator):
    """Add partitions to a topic and wait until the new ones have leaders.

    With more partitions, keys go to other partitions than before: for keyed topics this must be allowed.

    :param partitions: the number of partitions in the end; empty: as many as there are. (templated)
    :param allow_keyed: allow it for topics whose `cleanup.policy` has `compact`: their records have keys.
    """

    tells = staticmethod(outcomes.partitions_added)
    writes = staticmethod(written_topics.partitions_added)
    template_fields = (*TopicOperator.template_fields, "partitions")

    def __init__(self, *, topic: str, partitions: int | str, allow_keyed: bool = False, **kwargs: Any) -> None:
        super().__init__(topic=topic, **kwargs)
        self.partitions = partitions
        self.allow_keyed = allow_keyed

    def execute(self, context: Context) -> dict[str, Any]:
        wanted = as_integer("partitions", self.partitions, 0)
        with self.hook.client() as client:
            if self.checks_only and self.topic not in client.witnessed([self.topic]).topics:
                return self.report_missing()
            there = len(_existing(client, self.topic).partitions)
            wanted = wanted or there
            if wanted < there:
                raise TopicConflict(f"topic {self.topic} has {there} partitions: partitions cannot be removed")
            policy = client.topic_configs(self.topic).get("cleanup.policy")
            if wanted > there and not self.allow_keyed and policy and "compact" in (policy.value or ""):
                raise TopicConflict(
                    f"topic {self.topic} is compacted: set allow_keyed to let its keys change partitions"
                )
            if wanted > there:
                ensure_partitions(client, self.topic, wanted, dry_run=self.checks_only)
        result = {"topic": self.topic, "before": there, "after": wanted}
        return result | {"dry_run": True} if self.checks_only else self.wait_ready(context, result, wanted)


class DeleteTopicOperator(TopicOperator):
    """Delete a topic and wait until it is gone; succeeds if it does not exist.

    Gone means, as for Kafka's own tools, that the controller's broker no longer knows it (in a KRaft cluster: that no
    broker does). The controller may still be removing replicas, for as long as a broker that has one is away;
    CreateTopicOperator waits for that.

    Where topics have ids, a retry deletes the topic of the first try only: one that was made under the name since
    stays, and if the connection leads to another cluster since, it deletes nothing there and fails. A task that is
    cleared begins anew.

    :param wanted: false does nothing, for DAGs that delete only on request. (templated)
    :param must_match: a regular expression that must match the whole name. (templated)
    :param must_be_empty: refuse while any partition has records. (templated)
    :param must_have_no_group: refuse while a group with members has committed offsets in it. (templated)
    """

    tells = staticmethod(outcomes.deleted)
    template_fields = (*TopicOperator.template_fields, "wanted", "must_match", "must_be_empty", "must_have_no_group")

    def __init__(
        self,
        *,
        topic: str,
        wanted: bool | str = True,
        must_match: str | None = None,
        must_be_empty: bool | str = False,
        must_have_no_group: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, **kwargs)
        self.wanted = wanted
        self.must_match = must_match
        self.must_be_empty = must_be_empty
        self.must_have_no_group = must_have_no_group

    def execute(self, context: Context) -> dict[str, Any]:
        if not as_truth("wanted", self.wanted):
            return {"topic": self.topic, "deleted": False, "wanted": False}
        if self.must_match not in (None, "", "None") and not _matches(str(self.must_match), self.topic):
            raise TopicConflict(f"topic {self.topic} does not match {self.must_match!r}: not deleted")
        with self.hook.client() as client:
            snapshot = client.witnessed([self.topic])
            found = snapshot.topics.get(self.topic)
            kept = EarlierTopic(context, self.topic)
            earlier = kept.known(snapshot.cluster_id)
            result = {"topic": self.topic, "deleted": found is not None or earlier is not None}
            if found is None and self.topic not in snapshot.missing:
                # Another error than UNKNOWN_TOPIC_OR_PARTITION: this user may not see it.
                raise TopicConflict(f"topic {self.topic} cannot be described, so it is unknown whether it exists")
            if found is None:
                self.log.info("topic %s does not exist", self.topic)
                kept.forget()
                return result
            if None not in (earlier, found.topic_id) and found.topic_id != earlier:
                self.log.info("topic %s is gone: another one has its name now, which stays", self.topic)
                kept.forget()
                return result
            self._guard(client, [TopicPartition(self.topic, p.partition) for p in found.partitions])
            if self.checks_only:
                return result | {"dry_run": True}
            kept.remember(found.topic_id or earlier, snapshot.cluster_id)
            self._delete(client, found.topic_id or earlier)
        where = snapshot.cluster_id
        gone = TopicGoneTrigger(topic=self.topic, topic_id=found.topic_id, cluster_id=where, **self.waiting())
        values = self.wait(gone, "finish", result=result)
        kept.forget()
        return result | values

    def finish(self, context: Context, event: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        result = super().finish(context, event, result)
        EarlierTopic(context, self.topic).forget()
        return result

    def _guard(self, client: ClusterClient, partitions: list[TopicPartition]) -> None:
        if as_truth("must_be_empty", self.must_be_empty):
            first, last = client.offsets(partitions, EARLIEST), client.offsets(partitions, LATEST)
            records = sum(last[tp] - first[tp] for tp in partitions)
            if records:
                raise TopicConflict(f"topic {self.topic} holds up to {records} records: not deleted")
        if as_truth("must_have_no_group", self.must_have_no_group):
            for group in client.groups():
                if group.members and any(tp.topic == self.topic for tp in client.group_offsets(group.group_id)):
                    raise TopicConflict(f"topic {self.topic} is read by group {group.group_id}: not deleted")

    def _delete(self, client: ClusterClient, topic_id: str | None) -> None:
        try:
            client.delete_topic(self.topic, topic_id)
        except ApiError as refusal:
            if refusal.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise


class DeleteRecordsOperator(TopicOperator):
    """Move the log start of partitions up to given offsets; those that are there already do not change.

    Returns `{"topic", "log_start_offsets": {partition: offset}, "records"}`: how many offsets were given up, or would
    be in a dry run. A retry that finds another topic of the name than its first try (by its id) deletes nothing and
    fails: the offsets were those of a topic that is gone. A task that is cleared begins anew.

    :param before: partition → the first offset to keep, a mapping or its JSON; empty: nothing is done. (templated)
    """

    tells = staticmethod(outcomes.records_deleted)
    template_fields = (*TopicOperator.template_fields, "before")

    def __init__(self, *, topic: str, before: Mapping[Any, int] | str, **kwargs: Any) -> None:
        super().__init__(topic=topic, **kwargs)
        self.before = before

    def execute(self, context: Context) -> dict[str, Any]:
        given = as_mapping("before", self.before)
        wanted = {
            TopicPartition(self.topic, as_natural("before", p)): as_natural("before", o) for p, o in given.items()
        }
        if not wanted:
            return {"topic": self.topic, "log_start_offsets": {}, "records": 0}
        with self.hook.client() as client:
            self._refuse_another(client, context)
            before = client.offsets(list(wanted), EARLIEST)
            todo = {tp: offset for tp, offset in wanted.items() if offset > before[tp]}
            moved = client.delete_records(todo) if todo and not self.checks_only else todo
        EarlierTopic(context, self.topic).forget()
        now = before | moved
        return {
            "topic": self.topic,
            "log_start_offsets": {str(tp.partition): offset for tp, offset in sorted(now.items())},
            "records": sum(now[tp] - before[tp] for tp in wanted),
            **({"dry_run": True} if self.checks_only else {}),
        }

    def _refuse_another(self, client: ClusterClient, context: Context) -> None:
        if self.checks_only:
            return
        kept, snapshot = EarlierTopic(context, self.topic), client.snapshot([self.topic])
        earlier = kept.known(snapshot.cluster_id)
        if earlier is not None:
            # Only a retry must be certain: leaders delete records, whether there is a controller or not.
            snapshot = client.witnessed([self.topic])
        found = snapshot.topics.get(self.topic)
        topic_id = found.topic_id if found is not None else None
        if None not in (earlier, topic_id) and topic_id != earlier:
            raise TopicConflict(f"topic {self.topic} was made anew since the first try: no records are deleted")
        kept.remember(topic_id or earlier, snapshot.cluster_id)


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error as problem:
        raise BadSettings(f"must_match {pattern!r}: a regular expression is expected ({problem})") from None


def _existing(client: ClusterClient, topic: str) -> Any:
    found = client.witnessed([topic]).topics.get(topic)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
    return found


def _if_exists(value: str) -> IfExists:
    try:
        return IfExists(value)
    except ValueError:
        allowed = ", ".join(choice.value for choice in IfExists)
        raise BadSettings(f"if_exists {value!r}: expected one of {allowed}") from None
