"""Whether brokers would take a change of a topic: which part of it they refuse, and who may ask."""

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.plugins.logyard_ui.access.actions import ActionDag, Actions
from logyard.plugins.logyard_ui.cluster.topic_check import ALTER, CREATE, EXPAND, Refusal, TopicChange, check
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Connections, PageClient, make_app

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (TopicChange(CREATE, "t"), "topic"),
        (TopicChange(CREATE, "new", 1, 9), "replication_factor"),
        (TopicChange(EXPAND, "t", 2), "partitions"),
        (TopicChange(ALTER, "gone", settings=(("a", "b"),)), "topic"),
        (TopicChange(CREATE, "new", 3, 2), None),
        (TopicChange(EXPAND, "t", 7), None),
    ],
)
def test_a_refusal_names_its_part_and_nothing_is_changed(
    cluster: MemoryCluster, change: TopicChange, part: str | None
) -> None:
    before = dict(cluster.assignments), dict(cluster.configs)
    found = check(MemoryClient(cluster), change).refusal
    assert (None if found is None else found.part) == part
    assert (cluster.assignments, cluster.configs) == before


def test_any_other_refusal_is_of_the_whole(cluster: MemoryCluster) -> None:
    class Strict(MemoryClient):
        def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
            assert validate_only
            raise ApiError(ErrorCode.POLICY_VIOLATION, "names begin with a team")

    assert check(Strict(cluster), TopicChange(CREATE, "t")).refusal == Refusal("", "names begin with a team")


def test_who_may_not_start_the_dag_may_not_ask(cluster: MemoryCluster, known: Connections) -> None:
    actions = Actions(lambda: [ActionDag("create_topic", "logyard_create_topic", "logyard_default", False)])
    app = make_app(cluster, actions=actions)
    create, alter = ("/api/topic_check?topic=t&action=" + action for action in (CREATE, ALTER))
    assert PageClient(app, "OP").json(create)["refused"]["part"] == "topic"
    assert PageClient(app, "VIEWER").answer(create).status_code == 403
    assert PageClient(app, "OP").answer(alter).status_code == 403  # no DAG alters topics here
    assert PageClient(app, "OP").answer("/api/topic_check?topic=t&action=delete").status_code == 422
