"""Groups deleted: several at once, members, groups that are gone already, dry runs."""

from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.groups.offset_reset import GroupInUse
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.groups import DeleteGroupsOperator, StaleOffsets
from tests.support.airflow_tasks import Store, context, killed_in, run, use
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


@pytest.mark.parametrize(("named", "other"), [("1.10", "1.1"), ("1e1", "10.0"), ("true", "True"), ("NaN", "nan")])
def test_a_group_whose_name_looks_like_a_number_is_that_group(cluster: MemoryCluster, named: str, other: str) -> None:
    cluster.group_commits |= {named: dict(COMMITS), other: dict(COMMITS)}
    result, _ = run(DeleteGroupsOperator(task_id="d", groups=named), context())
    assert [one["group"] for one in result["deleted"]] == [named]
    assert (named in cluster.group_commits, other in cluster.group_commits) == (False, True)


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


def test_a_retry_deletes_no_group_of_another_cluster(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try found one of the groups, and its worker died; the connection was edited since."""
    store = Store()
    with killed_in(monkeypatch, MemoryClient, "delete_group"):
        delete("old", "theirs").execute(context(store))
    cluster.cluster_id, cluster.group_commits = "elsewhere", {"theirs": dict(COMMITS)}
    with pytest.raises(AirflowFailException, match="led to cluster memory at the first try, and leads to elsewhere"):
        run(delete("old", "theirs"), context(store))
    assert set(cluster.group_commits) == {"theirs"}


def test_a_retry_keeps_a_group_that_began_anew_since_the_first_try(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try deletes one group, and its worker dies; a consumer of that name comes, commits, and ends."""
    whole, store, cleared = MemoryClient.delete_group, Store(), context()
    cluster.group_commits["older"] = dict(COMMITS)

    def dies_after_it(client: MemoryClient, group: str) -> None:
        whole(client, group)
        raise SystemExit("killed")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryClient, "delete_group", dies_after_it)
        with pytest.raises(SystemExit):
            delete("old", "older").execute(context(store))
    assert set(cluster.group_commits) == {"read", "kept", "older"}
    cluster.group_commits["old"] = {TopicPartition("t", 0): 9}
    for _ in range(2):
        with pytest.raises(StaleOffsets, match="group old has committed other offsets since the first try"):
            run(delete("old", "older"), context(store))
    assert set(cluster.group_commits) == {"read", "kept", "old", "older"}
    del cluster.group_commits["old"]
    assert [one["group"] for one in run(delete("old", "older"), context(store))[0]["deleted"]] == ["older"]
    assert store == {}
    # Somebody clears the task, and means what is there then.
    store.set("logyard_deleted_groups", {"groups": {"kept": "of other offsets"}, "max_tries": 0})
    cleared["task_state_store"], cleared["ti"].max_tries = store, 1
    assert [one["group"] for one in run(delete("kept"), cleared)[0]["deleted"]] == ["kept"]
    assert store == {}


def test_no_group_is_a_mistake(cluster: MemoryCluster) -> None:
    with pytest.raises(AirflowFailException, match="name at least one"):
        run(delete(), context())
