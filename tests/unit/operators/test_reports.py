"""What topics keep, and which are worth compacting."""

from typing import Any

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.cluster.snapshot import ConfigValue, NewTopic
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.topics.retention import TopicRetention, judge
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException, AirflowSkipException
from logyard.operators.batches import BatchTopicsOperator, batches
from logyard.operators.reports import ChooseCompactionOperator, RetentionReportOperator, limits
from logyard.operators.spark import ExportSegmentsOperator
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None})
    client = MemoryClient(made)
    for name, policy in (("big", "compact"), ("small", "compact,delete"), ("plain", "delete"), ("void", "compact")):
        client.create_topic(NewTopic(name, 1, 2, {"cleanup.policy": policy}))
    client.snapshot()
    made.sizes = {TopicPartition(name, 0): size for name, size in (("big", 900), ("small", 90), ("plain", 5000))}
    made.end_offsets = {TopicPartition("plain", 0): 10}
    use(monkeypatch, made)
    return made


def choose(**fields: Any) -> list[list[str]]:
    found: list[list[str]] = run(ChooseCompactionOperator(task_id="c", **fields), context())[0]
    return found


def test_the_largest_compacted_topics_are_chosen(cluster: MemoryCluster) -> None:
    assert choose() == [["big"], ["small"]]
    assert choose(limit="1") == [["big"]]
    assert choose(bytes_min="1000") == [["big"]]
    assert choose(topics='["void"]', limit="1") == [["void"]]
    assert choose(topics="a, b, c", max_topics_a_job="2") == [["a", "c"], ["b"]]
    assert choose(max_topics_a_job="100") == [["big", "small"]]
    with pytest.raises(AirflowSkipException):
        choose(bytes_min="100000")


def test_a_broker_that_does_not_answer_keeps_no_topic_from_being_chosen(cluster: MemoryCluster) -> None:
    cluster.hung = {2}
    assert choose() == [["big"], ["small"]]
    cluster.hung = {1, 2}
    with pytest.raises(ClusterUnreachable, match="is silent"):
        choose()


@pytest.mark.parametrize("limit", [-1, "0"])
def test_a_limit_below_one_chooses_nothing_by_chance(cluster: MemoryCluster, limit: int | str) -> None:
    """Python takes -1 for all but the last one."""
    with pytest.raises(AirflowFailException, match="limit: a number above 0 is expected"):
        choose(limit=limit)


def test_a_topic_that_is_named_twice_is_compacted_once(cluster: MemoryCluster) -> None:
    assert choose(topics='["big", "small", "big"]') == [["big"], ["small"]]


def test_a_topic_that_is_deleted_meanwhile_holds_up_no_other(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = MemoryClient.snapshot

    def deleted_behind(self: MemoryClient, *arguments: Any, **more: Any) -> Any:
        seen = look(self, *arguments, **more)
        if "void" in cluster.configs:
            self.delete_topic("void")
        return seen

    monkeypatch.setattr(MemoryClient, "snapshot", deleted_behind)
    assert choose() == [["big"], ["small"]]
    MemoryClient(cluster).create_topic(NewTopic("void", 1, 2))
    found, _ = run(RetentionReportOperator(task_id="r"), context())
    assert [entry["topic"] for entry in found["topics"]] == ["plain", "big", "small"]


def test_topics_are_dealt_to_as_few_jobs_as_possible(cluster: MemoryCluster) -> None:
    topics = [f"t{number}" for number in range(7)]
    assert batches(topics, 3) == [["t0", "t3", "t6"], ["t1", "t4"], ["t2", "t5"]]
    assert batches(topics, 7) == [topics]
    assert batches([], 3) == []
    made = BatchTopicsOperator(task_id="b", topics='["a", "b", "a", "c"]', max_topics_a_job="2")
    ctx = context()
    assert run(made, ctx)[0] == [["a", "c"], ["b"]]
    assert ctx["ti"].values["outcome"]["sentence"] == "3 topics in 2 Spark jobs"
    for given, most, message in (("[]", "1", "at least one"), ("a", "0", "above 0")):
        with pytest.raises(AirflowFailException, match=message):
            BatchTopicsOperator(task_id="b", topics=given, max_topics_a_job=most).execute(context())
    with pytest.raises(AirflowSkipException):
        BatchTopicsOperator(task_id="b", topics="[]", skip_without=True).execute(context())


def test_a_report_names_sizes_records_and_what_is_wrong(cluster: MemoryCluster) -> None:
    cluster.configs["plain"]["retention.ms"] = "1000"
    found, _ = run(RetentionReportOperator(task_id="r"), context())
    assert [entry["topic"] for entry in found["topics"]] == ["plain", "big", "small", "void"]
    plain = found["topics"][0]
    assert (plain["bytes_once"], plain["bytes_all"], plain["records"], plain["overdue"]) == (5000, 10000, 10, 10)
    assert found["findings"]["plain"] == ["10 of 10 records are older than retention.ms: are its segments too large?"]
    assert found["findings"]["void"] == ["it is empty"]
    assert (found["bytes"], found["records"]) == (10000 + 1800 + 180, 10)
    one, _ = run(RetentionReportOperator(task_id="r", topics="small"), context())
    assert [entry["topic"] for entry in one["topics"]] == ["small"]


def test_a_report_says_that_a_named_topic_does_not_exist(cluster: MemoryCluster) -> None:
    ctx = context()
    found, _ = run(RetentionReportOperator(task_id="r", topics=["plain", "plian"]), ctx)
    assert [entry["topic"] for entry in found["topics"]] == ["plain", "plian"]
    assert found["findings"]["plian"] == ["it does not exist"]
    assert ctx["ti"].values["outcome"]["rows"][1][-1] == "it does not exist"


def test_limits_that_may_not_be_seen_are_not_said_to_be_none(cluster: MemoryCluster) -> None:
    tp = TopicPartition("plain", 0)
    found = judge("plain", MemoryClient(cluster).snapshot(), {}, [], {tp: 0}, {tp: 10}, {})
    assert found.policy == "unknown"
    assert found.findings == ("how long its records are kept is not known: this login may not see its settings",)


def test_limits_are_judged(cluster: MemoryCluster) -> None:
    client = MemoryClient(cluster)
    snapshot, sizes, tp = client.snapshot(), client.replica_sizes(), TopicPartition("plain", 0)

    def findings(**limits: str) -> tuple[str, ...]:
        configs = {key.replace("_", "."): ConfigValue(v, "DYNAMIC_TOPIC_CONFIG") for key, v in limits.items()}
        return judge("plain", snapshot, configs, sizes, {tp: 0}, {tp: 10}, {tp: 2}).findings

    assert findings(retention_ms="-1", retention_bytes="-1") == ("it has no limit: its records are kept for ever",)
    assert findings(cleanup_policy="", retention_ms="5") == ("it has no limit: its records are kept for ever",)
    assert findings(retention_ms="5", retention_bytes="2400") == ("1 partitions hold more than twice retention.bytes",)
    assert findings(retention_ms="5", retention_bytes="2500") == ()


def test_an_export_with_nothing_to_do_is_skipped() -> None:
    for fields in ({"topics": "[]", "destination": "/out"}, {"topics": "[]", "destination": ""}):
        with pytest.raises(AirflowSkipException, match="no topics and destination"):
            ExportSegmentsOperator(task_id="e", skip_without=True, **fields).execute(context())


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "text"),
    [
        (604_800_000, None, "1 week"),
        (90_061_000, 5, "1 day 1 hour 1 minute 1 second, 5 B"),
        (500, None, "500 ms"),
        (2**63 - 1, None, "9223372036854775807 ms"),
        (None, 1024, "1.0 KiB"),
        (None, None, "no limit"),
    ],
)
def test_limits_are_logged_in_words(retention_ms: int | None, retention_bytes: int | None, text: str) -> None:
    assert limits(TopicRetention("t", "delete", retention_ms, retention_bytes, 1, 0, 0, 0, 0)) == text
