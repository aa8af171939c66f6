"""Groups deleted: several at once, members, groups that are gone already, dry runs."""

from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.groups.offset_reset import GroupInUse
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.groups import DeleteGroupsOperator
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

COMMITS = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 4}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None})
    made.group_commits = {"old": dict(COMMITS), "read": {}, "kept": {}}
    made.group_members = {"read": 2}
    use(monkeypatch, made)
    return made


def delete(*groups: str, **fields: Any) -> DeleteGroupsOperator:
    return DeleteGroupsOperator(task_id="d", groups=list(groups), **fields)


def test_groups_are_deleted_with_what_they_committed(cluster: MemoryCluster) -> None:
    result, _ = run(delete("old", "never", "old"), context())
    assert result == {"deleted": [{"group": "old", "offsets": 2}], "missing": ["never"], "dry_run": False}
    assert set(cluster.group_commits) == {"read", "kept"}
    assert run(delete("old"), context())[0]["missing"] == ["old"]  # a second run finds nothing to do


def test_one_group_with_members_keeps_all(cluster: MemoryCluster) -> None:
    with pytest.raises((GroupInUse, AirflowFailException), match="2 members"):
        run(delete("old", "read"), context())
    assert set(cluster.group_commits) == {"old", "read", "kept"}


def test_a_dry_run_deletes_nothing(cluster: MemoryCluster) -> None:
    result, _ = run(delete("old", dry_run=True), context())
    assert (result["deleted"], result["dry_run"]) == ([{"group": "old", "offsets": 2}], True)
    assert "old" in cluster.group_commits


def test_a_group_that_goes_or_is_joined_meanwhile(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP]

    def answer(_: MemoryClient, group: str) -> None:
        raise ApiError(answers.pop(0), f"group {group}")

    monkeypatch.setattr(MemoryClient, "delete_group", answer)
    assert run(delete("old"), context())[0]["missing"] == ["old"]
    with pytest.raises((ApiError, AirflowFailException)):
        run(delete("old"), context())


def test_no_group_is_a_mistake(cluster: MemoryCluster) -> None:
    with pytest.raises(AirflowFailException, match="name at least one"):
        run(delete(), context())
