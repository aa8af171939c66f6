"""Topics brought about: what differs, what is refused, and that a second run finds nothing to do."""

from collections.abc import Sequence

import pytest

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, NewTopic, PartitionView, TopicView
from logyard.admin.topics.changes import IfExists, TopicConflict, ensure_topic, plan_changes
from logyard.broker.errors import ApiError, ErrorCode
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

WANTED = NewTopic("t", 3, 2, {"cleanup.policy": "compact"})


def client() -> MemoryClient:
    return MemoryClient(MemoryCluster({1: None, 2: None, 3: None}))


def test_a_new_topic_is_created_and_a_second_run_does_nothing() -> None:
    c = client()
    assert ensure_topic(c, WANTED, IfExists.RECONCILE).create == WANTED
    assert ensure_topic(c, WANTED, IfExists.RECONCILE).is_empty
    assert len(c.snapshot(["t"]).topics["t"].partitions) == 3


def test_what_is_there_fails_or_is_skipped() -> None:
    c = client()
    ensure_topic(c, WANTED, IfExists.FAIL)
    with pytest.raises(ApiError) as refusal:
        ensure_topic(c, WANTED, IfExists.FAIL)
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    other = NewTopic("t", 9, 3, {"cleanup.policy": "delete"})
    assert ensure_topic(c, other, IfExists.SKIP).is_empty
    assert c.topic_configs("t")["cleanup.policy"].value == "compact"


def test_reconciling_sets_what_differs_and_grows() -> None:
    c = client()
    ensure_topic(c, WANTED, IfExists.FAIL)
    c.alter_topic_configs("t", {"retention.ms": "5"})
    changes = ensure_topic(c, NewTopic("t", 5, 2, {"cleanup.policy": "delete"}), IfExists.RECONCILE)
    assert changes.add_partitions_to == 5
    assert changes.set_configs == {"cleanup.policy": "delete"}
    assert c.topic_configs("t")["retention.ms"].value == "5"  # not named, so left alone
    assert len(c.snapshot(["t"]).topics["t"].partitions) == 5


class BehindTheTimes(MemoryClient):
    """Shows topics as they were when `stale` was taken, as a broker does that has not heard of a change yet."""

    stale: ClusterSnapshot | None = None

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot:
        return self.stale or super().snapshot(topics, reassignments=reassignments)

    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot:
        return self.stale or super().witnessed(topics)


def test_partitions_that_a_look_does_not_show_yet_are_there() -> None:
    c = BehindTheTimes(MemoryCluster({1: None, 2: None, 3: None}))
    ensure_topic(c, WANTED, IfExists.FAIL)
    c.stale = c.snapshot(["t"])
    grown = NewTopic("t", 5, 2, WANTED.configs)
    assert ensure_topic(c, grown, IfExists.RECONCILE).add_partitions_to == 5
    assert ensure_topic(c, grown, IfExists.RECONCILE).add_partitions_to == 5  # refused, for it has five
    with pytest.raises(ApiError) as refusal:
        ensure_topic(c, NewTopic("t", 4, 2, WANTED.configs), IfExists.RECONCILE)
    assert refusal.value.code is ErrorCode.INVALID_PARTITIONS
    c.stale = None
    assert len(c.snapshot(["t"]).topics["t"].partitions) == 5


def test_what_cannot_be_done_is_refused_with_every_difference() -> None:
    c = client()
    ensure_topic(c, WANTED, IfExists.FAIL)
    with pytest.raises(TopicConflict) as refusal:
        ensure_topic(c, NewTopic("t", 2, 3), IfExists.RECONCILE)
    assert "3 cannot become 2" in str(refusal.value)
    assert "replication factor: 2 to 3" in str(refusal.value)


def test_a_dry_run_changes_nothing() -> None:
    c = client()
    assert ensure_topic(c, WANTED, IfExists.RECONCILE, dry_run=True).create == WANTED
    assert c.snapshot(["t"]).missing == ("t",)


def test_lists_compare_regardless_of_blanks() -> None:
    found = TopicView("t", (PartitionView(0, 1, (1,), (1,)),))
    configs = {"cleanup.policy": ConfigValue("compact, delete", "DYNAMIC_TOPIC_CONFIG")}
    assert plan_changes(NewTopic("t", configs={"cleanup.policy": "compact,delete"}), found, configs).is_empty


def test_a_default_that_equals_the_wish_is_still_set() -> None:
    """Else the topic would change when the broker's default does."""
    found = TopicView("t", (PartitionView(0, 1, (1,), (1,)),))
    configs = {"cleanup.policy": ConfigValue("delete", "DEFAULT_CONFIG")}
    changes = plan_changes(NewTopic("t", configs={"cleanup.policy": "delete"}), found, configs)
    assert changes.set_configs == {"cleanup.policy": "delete"}


def test_a_lost_answer_is_settled_by_looking() -> None:
    """The request was carried out, its answer was lost and it was sent again: the topic is ours."""

    class Forgetful(MemoryClient):
        def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
            super().create_topic(topic, validate_only=validate_only)
            super().create_topic(topic, validate_only=validate_only)

    c = Forgetful(MemoryCluster({1: None, 2: None}))
    assert ensure_topic(c, WANTED, IfExists.FAIL).create == WANTED
