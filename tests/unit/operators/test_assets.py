"""Topics as assets: their URIs, and the events of tasks that change them."""

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("airflow.sdk")

from airflow.sdk import Asset, AssetAlias

from logyard.admin.cluster.snapshot import NewTopic
from logyard.operators import assets, provider_info, written_topics
from logyard.operators.airflow_names import AirflowException
from logyard.operators.assets import TOPICS_ALIAS, create_asset, sanitize_uri, topic_asset, topic_uri
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.provider_info import get_provider_info
from logyard.operators.spark import CompactSegmentsOperator
from logyard.operators.topics import AddPartitionsOperator, AlterTopicOperator, CreateTopicOperator
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


class Events(dict[str, Any]):
    """`outlet_events`: what is added by an alias, or set at an asset, by the asset's URI."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, AssetAlias):
            return SimpleNamespace(add=lambda asset, extra: self.setdefault(asset.uri, (key.name, extra)))
        return SimpleNamespace(extra=self.setdefault(key.uri, {}))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", assignment={0: (1, 2)}))
    client.snapshot()
    use(monkeypatch, made, asset_server="Kafka.West")
    return made


def told(operator: Any) -> Events:
    events = Events()
    run(operator, context() | {"outlet_events": events})
    return events


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("kafka://Broker-1:9092/Orders", "kafka://broker-1:9092/Orders"),
        ("kafka://broker-1/orders", "kafka://broker-1:9092/orders"),
        ("kafka://a:1,b:2/orders/", "kafka://a:1/orders"),
        ("kafka://[::1]:19092/orders", "kafka://[::1]:19092/orders"),
        ("kafka://[::1]/orders", "kafka://[::1]:9092/orders"),
        ("kafka://user:secret@a:1/orders?x=1#y", "kafka://a:1/orders"),
    ],
)
def test_a_uri_has_one_normal_form(given: str, normal: str) -> None:
    assert sanitize_uri(urlsplit(given)).geturl() == normal
    assert sanitize_uri(urlsplit(normal)).geturl() == normal


@pytest.mark.parametrize(
    "wrong",
    ["kafka:///t", "kafka://a:1", "kafka://a:1/", "kafka://a:1/t/u", "kafka://a:1/..", "kafka://:1/t", "kafka://a:x/t"],
)
def test_what_names_no_topic_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="kafka://HOST:PORT/TOPIC"):
        sanitize_uri(urlsplit(wrong))


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", "..")))
def test_every_topics_name_comes_through(name: str) -> None:
    made = create_asset(server="A:1", topic=name)
    assert made.uri == topic_uri("a:1", name) == f"kafka://a:1/{name}"


def test_airflow_finds_the_handler_in_the_providers_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_info, "find_spec", lambda name: None)
    (entry,) = get_provider_info()["asset-uris"]
    for key in ("handler", "factory", "to_openlineage_converter"):
        module, name = entry[key].rsplit(".", 1)
        assert (module, hasattr(assets, name)) == ("logyard.operators.assets", True)
    # Beside Airflow's own Kafka provider its handler stays.
    monkeypatch.setattr(provider_info, "find_spec", lambda name: object())
    assert get_provider_info()["asset-uris"] == []


def test_a_connection_names_its_cluster(cluster: MemoryCluster) -> None:
    assert topic_asset("t").uri == "kafka://kafka.west:9092/t"


def test_a_new_topic_is_an_event(cluster: MemoryCluster) -> None:
    events = told(CreateTopicOperator(task_id="c", topic="u", partitions=2, replication_factor=2))
    extra = {"logyard_conn_id": "logyard_default", "topic": "u", "change": "created", "partitions": 2}
    assert events == {"kafka://kafka.west:9092/u": (TOPICS_ALIAS, extra)}


def test_an_outlet_that_is_the_topic_gets_what_the_event_tells(cluster: MemoryCluster) -> None:
    asset = Asset("kafka://kafka.west:9092/u")
    events = told(CreateTopicOperator(task_id="c", topic="u", partitions=1, outlets=[asset]))
    assert dict(events)[asset.uri]["change"] == "created"


def test_what_changes_nothing_is_no_event(cluster: MemoryCluster) -> None:
    assert told(CreateTopicOperator(task_id="c", topic="t", if_exists="reconcile", partitions=1)) == {}
    assert told(CreateTopicOperator(task_id="c", topic="u", dry_run=True)) == {}
    assert told(AddPartitionsOperator(task_id="a", topic="t", partitions=1)) == {}
    assert told(AlterTopicOperator(task_id="a", topic="t", configs={})) == {}
    assert told(ElectLeadersOperator(task_id="e", dry_run=True)) == {}
    assert ElectLeadersOperator(task_id="e").outlets == []


def test_partitions_and_settings_are_events(cluster: MemoryCluster) -> None:
    (_, more), *_ = told(AddPartitionsOperator(task_id="a", topic="t", partitions=3)).values()
    assert (more["change"], more["partitions_before"], more["partitions"]) == ("partitions added", 1, 3)
    (_, set_), *_ = told(AlterTopicOperator(task_id="s", topic="t", configs={"retention.ms": 1})).values()
    assert (set_["change"], set_["set_configs"]) == ("altered", {"retention.ms": "1"})


def test_without_a_server_the_work_stays_done(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, cluster, asset_server="no server:at all")
    assert told(CreateTopicOperator(task_id="c", topic="u", partitions=1)) == {}
    assert "u" in MemoryClient(cluster).snapshot().topics


def test_a_compaction_is_an_event_of_each_topic() -> None:
    counts = {"records_before": 9, "records_after": 3, "bytes_before": 90, "bytes_after": 30}
    skipped = {"outcome": "skipped", **dict.fromkeys(counts, 0)}
    done = {"outcome": "compacted", **counts}
    details = {"a-b-0": done, "a-b-1": done, "a-b-2": skipped, "c-0": skipped}
    assert written_topics.compacted({"details": details}) == {
        "a-b": {
            "change": "compacted",
            "partitions": {"0": counts, "1": counts},
            **{key: 2 * value for key, value in counts.items()},
        }
    }
    assert [one.name for one in CompactSegmentsOperator(task_id="c", topics=["t"]).outlets] == [TOPICS_ALIAS]


def test_a_connection_that_is_gone_at_the_end_undoes_nothing(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its secrets backend is away: a task that failed now would write its records again, or compact again."""
    read = ClusterHook.get_connection

    def gone(conn_id: str) -> Any:
        if "made" in cluster.configs:
            raise AirflowException(f"The conn_id `{conn_id}` isn't defined")
        return read(conn_id)

    monkeypatch.setattr(ClusterHook, "get_connection", staticmethod(gone))
    operator = CreateTopicOperator(task_id="c", topic="made", wait_for_leaders=False)
    assert told(operator) == {}
