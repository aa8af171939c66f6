"""Offsets of groups set: every kind of target, bounds, members, and a try that died in the middle."""

import json
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError
from logyard.admin.groups.offset_reset import GroupInUse, Target
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.approval import is_empty, offsets_markdown
from logyard.operators.groups import ResetOffsetsOperator, StaleOffsets
from tests.support.airflow_tasks import Store, context, killed_in, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None})
    MemoryClient(made).create_topic(NewTopic("t", 2, 1))
    made.start_offsets, made.end_offsets = {ONE: 10, TWO: 0}, {ONE: 100, TWO: 50}
    made.group_commits["g"] = {ONE: 40, TWO: 40}
    use(monkeypatch, made)
    return made


def reset(**fields: Any) -> ResetOffsetsOperator:
    return ResetOffsetsOperator(task_id="r", **{"group": "g", **fields})


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", (10, 0)),
        ("latest", (100, 50)),
        ("5", (10, 5)),  # before the log's start
        (70, (70, 50)),  # behind the log's end
        ("+20", (60, 50)),
        ("-35", (10, 5)),
        ("current", (40, 40)),
        ("2026-01-01T00:00:00Z", (100, 50)),  # the twin knows no times: what is after the last record is the end
    ],
)
def test_offsets_are_set_inside_the_log(cluster: MemoryCluster, to: Any, expected: tuple[int, int]) -> None:
    result, _ = run(reset(to=to), context())
    assert (cluster.group_commits["g"][ONE], cluster.group_commits["g"][TWO]) == expected
    assert set(result["changed"]) == {str(tp) for tp, now in zip((ONE, TWO), expected, strict=True) if now != 40}
    if to not in ("+20", "-35"):
        assert run(reset(to=to), context())[0]["changed"] == {}


@pytest.mark.parametrize("topics", [["t"], None], ids=["named", "committed"])
def test_a_partition_that_one_broker_has_not_heard_of_is_set_too(cluster: MemoryCluster, topics: Any) -> None:
    before = MemoryClient(cluster).snapshot().topics["t"]
    MemoryClient(cluster).add_partitions("t", 3)
    cluster.tick()
    cluster.outdated = {"t": before}
    three = TopicPartition("t", 2)
    cluster.end_offsets[three], cluster.group_commits["g"][three] = 9, 1
    run(reset(topics=topics, to="latest"), context())
    assert cluster.group_commits["g"] == {ONE: 100, TWO: 50, three: 9}
    cluster.electing, cluster.controller = False, None  # where nobody tells, one broker's list has to do
    run(reset(topics=topics, to="earliest"), context())
    assert cluster.group_commits["g"] == {ONE: 10, TWO: 0, three: 9}


def test_offsets_may_be_named_one_by_one(cluster: MemoryCluster) -> None:
    result, _ = run(reset(offsets='{"t": {"1": 7}}'), context())
    assert result["changed"] == {"t-1": {"before": 40, "after": 7}}
    assert cluster.group_commits["g"] == {ONE: 40, TWO: 7}


def test_a_new_group_needs_topics(cluster: MemoryCluster) -> None:
    with pytest.raises(AirflowFailException, match="name the topics"):
        run(reset(group="new", to="latest"), context())
    run(reset(group="new", to="latest", topics='["t"]'), context())
    assert cluster.group_commits["new"] == {ONE: 100, TWO: 50}
    with pytest.raises(AirflowFailException, match="nothing to shift"):
        run(reset(group="newer", to="+1", topics=["t"]), context())
    with pytest.raises(ApiError, match="nowhere"):
        run(reset(to="latest", topics=["nowhere"]), context())


def test_a_group_with_members_is_refused_and_a_dry_run_sets_nothing(cluster: MemoryCluster) -> None:
    result, _ = run(reset(to="earliest", dry_run=True), context())
    assert len(result["changed"]) == 2
    assert cluster.group_commits["g"] == {ONE: 40, TWO: 40}
    cluster.group_members["g"] = 2
    with pytest.raises(GroupInUse, match="2 members"):
        run(reset(to="earliest"), context())


def test_a_shift_is_not_done_twice(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies after the commit and before anybody heard of it."""
    store, commit = Store(), MemoryClient.alter_group_offsets

    def dies(self: MemoryClient, *arguments: Any) -> None:
        commit(self, *arguments)
        raise SystemExit("killed")

    monkeypatch.setattr(MemoryClient, "alter_group_offsets", dies)
    with pytest.raises(SystemExit):
        reset(to="-30").execute(context(store))
    monkeypatch.setattr(MemoryClient, "alter_group_offsets", commit)
    run(reset(to="-30"), context(store))
    assert cluster.group_commits["g"] == {ONE: 10, TWO: 10}
    assert store == {}


def dies_in_the_commit(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """A try that has kept its target is killed before it commits."""
    with killed_in(monkeypatch, MemoryClient, "alter_group_offsets"):
        reset(to="-30").execute(context(store))


def test_a_retry_does_not_set_back_what_the_group_has_read_since(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    dies_in_the_commit(monkeypatch, store)
    cluster.group_commits["g"][TWO] = 50
    with pytest.raises(StaleOffsets, match=r"t-1: the committed offset is 50 now, and was 40 when .* clear the task"):
        run(reset(to="-30"), context(store))
    assert cluster.group_commits["g"] == {ONE: 40, TWO: 50}


def test_a_cleared_task_calculates_its_offsets_anew(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed weeks ago, and the group has read on since."""
    store = Store()
    dies_in_the_commit(monkeypatch, store)
    cluster.group_commits["g"] = {ONE: 90, TWO: 50}
    cleared = context(store)
    cleared["ti"].max_tries = 1
    run(reset(to="-30"), cleared)
    assert cluster.group_commits["g"] == {ONE: 60, TWO: 20}
    assert store == {}


def test_what_was_planned_is_what_is_set(cluster: MemoryCluster) -> None:
    planned, _ = run(reset(to="-30", dry_run=True), context())
    assert cluster.group_commits["g"] == {ONE: 40, TWO: 40}
    cluster.end_offsets[ONE] += 1000  # records that came since change nothing
    done, _ = run(reset(plan=json.dumps(planned)), context())
    assert done["changed"] == planned["changed"]
    assert cluster.group_commits["g"] == {ONE: 10, TWO: 10}
    assert run(reset(plan=planned), context())[0]["changed"] == {}  # a retry finds it done
    assert run(reset(plan={**planned, "changed": {}}), context())[0]["changed"] == {}


def test_a_plan_is_stale_once_the_group_commits(cluster: MemoryCluster) -> None:
    planned, _ = run(reset(to="earliest", dry_run=True), context())
    cluster.group_commits["g"][TWO] = 44
    with pytest.raises(StaleOffsets, match="g, t-1: the committed offset is 44 now, and was 40 when"):
        run(reset(plan=planned), context())
    assert cluster.group_commits["g"] == {ONE: 40, TWO: 44}
    with pytest.raises(AirflowFailException, match="for group other"):
        run(reset(group="other", plan=planned), context())
    cluster.group_members["g"] = 1
    with pytest.raises(GroupInUse, match="1 members"):
        run(reset(plan=planned), context())


def test_a_plan_is_of_one_cluster(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is edited: the other cluster has the same names, and the group stands where it did."""
    planned, _ = run(reset(to="-30", dry_run=True), context())
    store = Store()
    dies_in_the_commit(monkeypatch, store)
    cluster.cluster_id = "elsewhere"
    by_plan, by_retry = reset(plan=json.dumps(planned)), reset(to="-30")
    tries = ((by_plan, Store(), "when the plan was made"), (by_retry, store, "at the first try"))
    for again, kept, since in tries:
        said = f"led to cluster memory {since}, and leads to elsewhere now"
        with pytest.raises(AirflowFailException, match=said):
            run(again, context(kept))
    assert cluster.group_commits["g"] == {ONE: 40, TWO: 40}
    cluster.cluster_id = "memory"
    run(reset(plan=planned), context())
    assert cluster.group_commits["g"] == {ONE: 10, TWO: 10}


def test_whoever_approves_sees_each_offset(cluster: MemoryCluster) -> None:
    planned, _ = run(reset(to="latest", dry_run=True), context())
    assert not is_empty(planned)
    assert is_empty({**planned, "changed": {}})
    text = offsets_markdown(planned)
    assert "| t-0 | 40 | 100 |" in text
    many = {f"t-{n}": {"before": None, "after": 1000 + n} for n in range(60)}
    text = offsets_markdown({**planned, "changed": many})
    assert text.startswith("**60 committed offsets change**")
    assert "| t-49 | none | 1,049 |" in text
    assert text.endswith("… and 10 more (the plan task's result has all of them)")


@pytest.mark.parametrize("text", ["soon", "", "1.5", "++1"])
def test_targets_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="expected"):
        Target.parse(text)


def test_times_without_a_zone_are_utc() -> None:
    assert Target.parse("1970-01-01T00:00:01") == Target("time", 1000) == Target.parse("1970-01-01T01:00:01+01:00")
