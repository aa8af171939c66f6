"""Topics as code: the file, the plan, its guard rails, what was approved, and nobody asked for nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.providers.standard.operators.hitl import ApprovalOperator

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.settings import BadSettings
from logyard.admin.topics.document import Catalog
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.approval import ApprovePlanOperator
from logyard.operators.catalog import ApplyTopicsOperator, PlanTopicsOperator
from logyard.operators.triggers.base import WaitFailed
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

FILE = """
version: 1
owns: "orders\\\\..*"
defaults: {partitions: 2, replication_factor: 1, configs: {retention.ms: 1000}}
topics:
  orders.created: {}
  orders.current: {partitions: 3, configs: {cleanup.policy: [compact, delete], retention.ms: null, x.y: true}}
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None})
    monkeypatch.setenv("AIRFLOW__LOGYARD__TOPICS_DIRECTORY", str(tmp_path))
    (tmp_path / "topics.yaml").write_text(FILE)
    use(monkeypatch, made)
    return made


class Located:
    fileloc = "/nowhere/dag.py"


def plan(**fields: Any) -> dict[str, Any]:
    operator = PlanTopicsOperator(task_id="p", **{"file": "topics.yaml", **fields})
    found: dict[str, Any] = run(operator, {**context(), "dag": Located()})[0]
    return found


def apply(document: Any, **fields: Any) -> dict[str, Any]:
    operator = ApplyTopicsOperator(task_id="a", plan=document, **{"file": "topics.yaml", **fields})
    found: dict[str, Any] = run(operator, {**context(), "dag": Located()})[0]
    return found


def test_what_is_planned_is_done_and_then_nothing_is_left(cluster: MemoryCluster) -> None:
    document = plan()
    assert "orders.current: + cleanup.policy: compact,delete" in document["lines"]
    assert cluster.configs == {}
    assert apply(document, dry_run=True)["changed"] == ["orders.created", "orders.current"]
    assert cluster.configs == {}
    assert apply(document)["changed"] == ["orders.created", "orders.current"]
    assert cluster.configs["orders.created"] == {"retention.ms": "1000"}
    assert cluster.configs["orders.current"] == {"cleanup.policy": "compact,delete", "x.y": "true"}
    assert len([tp for tp in cluster.assignments if tp.topic == "orders.current"]) == 3
    assert plan()["empty"] is True
    assert apply(document)["changed"] == []  # a retry finds it done


def test_a_topic_is_created_once_the_earlier_one_of_its_name_is_gone(cluster: MemoryCluster) -> None:
    apply(plan())
    cluster.ticks_to_delete = 8
    MemoryClient(cluster).delete_topic("orders.created")
    document = plan()
    assert "orders.created" in cluster.deleting
    with pytest.raises(WaitFailed, match=r"orders\.created is still being deleted"):
        apply(document, dry_run=True)
    assert apply(document)["changed"] == ["orders.created"]
    assert "orders.created" in cluster.configs


def test_what_was_not_approved_is_not_done(cluster: MemoryCluster, tmp_path: Path) -> None:
    document = plan()
    (tmp_path / "topics.yaml").write_text(FILE.replace("partitions: 3", "partitions: 30"))
    with pytest.raises(AirflowFailException, match=r"not approved: create orders\.current partitions 30"):
        apply(document)
    assert cluster.configs == {}
    with pytest.raises(AirflowFailException, match="PlanTopicsOperator"):
        apply("{}")


def test_what_was_approved_for_one_cluster_is_not_done_in_another(cluster: MemoryCluster) -> None:
    """Both lack the same topics, and the connection is edited while a person thinks."""
    document = plan()
    cluster.cluster_id = "elsewhere"
    with pytest.raises(AirflowFailException, match=r"led to cluster memory when .* leads to elsewhere now"):
        apply(document)
    assert cluster.configs == {}


def test_one_broker_that_lags_behind_is_not_believed(cluster: MemoryCluster) -> None:
    """It has not heard of one topic that the file lists, nor of one that it does not."""
    apply(plan())
    MemoryClient(cluster).create_topic(NewTopic("orders.old", 1, 1))
    cluster.unheard = {"orders.created", "orders.old"}
    found = plan()
    assert (found["empty"], found["unlisted"]) == (True, ["orders.old"])


def test_unlisted_topics_are_left_alone_unless_asked_and_never_too_many(cluster: MemoryCluster, tmp_path: Path) -> None:
    client = MemoryClient(cluster)
    apply(plan())
    for name in ("orders.old", "orders.older", "payments"):
        client.create_topic(NewTopic(name, 1, 1))
    left = plan()
    assert (left["empty"], left["unlisted"]) == (True, ["orders.old", "orders.older"])
    with pytest.raises(AirflowFailException, match="2 topics would be deleted, 1 are allowed"):
        plan(delete_unlisted="True", deletes_max="1")
    document = plan(delete_unlisted=True)
    with pytest.raises(AirflowFailException, match="not approved"):
        apply(left, delete_unlisted=True)
    assert apply(document, delete_unlisted=True)["deleted"] == ["orders.old", "orders.older"]
    assert sorted(cluster.configs) == ["orders.created", "orders.current", "payments"]
    (tmp_path / "topics.yaml").write_text('version: 1\nowns: "orders.*"\ntopics: {}')
    with pytest.raises(AirflowFailException, match="lists no topic"):
        plan(delete_unlisted=True)
    (tmp_path / "topics.yaml").write_text("version: 1\ntopics: {payments: {}}")
    with pytest.raises(AirflowFailException, match="owns"):
        plan(delete_unlisted=True)


def test_a_topic_that_was_made_anew_since_the_approval_is_not_deleted(cluster: MemoryCluster) -> None:
    """Also what a retry finds, where the first try has deleted the topic and somebody has made it again."""
    client = MemoryClient(cluster)
    apply(plan())
    client.create_topic(NewTopic("orders.old", 1, 1))
    document = plan(delete_unlisted=True)
    assert apply(document, delete_unlisted=True)["deleted"] == ["orders.old"]
    client.create_topic(NewTopic("orders.old", 1, 1))
    with pytest.raises(AirflowFailException, match=r"not approved: delete orders\.old .*: plan again"):
        apply(document, delete_unlisted=True)
    assert "orders.old" in cluster.configs


def test_an_approved_deletion_spares_a_topic_that_is_made_anew_meanwhile(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, whole = MemoryClient(cluster), MemoryClient.delete_topic
    apply(plan())
    client.create_topic(NewTopic("orders.old", 1, 1))
    document = plan(delete_unlisted=True)

    def too_late(asked: MemoryClient, topic: str, topic_id: str | None = None) -> None:
        whole(asked, topic)
        asked.create_topic(NewTopic(topic, 1, 1))
        whole(asked, topic, topic_id)

    monkeypatch.setattr(MemoryClient, "delete_topic", too_late)
    with pytest.raises(ApiError) as refusal:
        apply(document, delete_unlisted=True)
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert "orders.old" in cluster.configs


def test_risks_and_what_cannot_be_done_are_named(cluster: MemoryCluster) -> None:
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("orders.created", 4, 2, {"retention.ms": "-1"}))
    client.create_topic(NewTopic("orders.current", 1, 1, {"cleanup.policy": "compact"}))
    document = plan()
    assert document["warnings"] == [
        "orders.created: partitions: 4 cannot become 2: partitions cannot be removed",
        "orders.created: replication factor: 2 to 1 needs a reassignment",
        "orders.created: retention.ms gets smaller: existing records will be deleted",
        "orders.current: it is compacted, so it has keys: keys will move to other partitions",
    ]
    done = apply(document)
    assert done["refused"] == document["warnings"][:2]
    assert cluster.configs["orders.created"] == {"retention.ms": "1000"}
    again = plan()
    assert again["empty"] is True
    assert len(again["warnings"]) == 2


def test_a_file_for_another_cluster_is_refused(cluster: MemoryCluster, tmp_path: Path) -> None:
    (tmp_path / "topics.yaml").write_text("version: 1\ncluster_id: other\ntopics: {t: {}}")
    with pytest.raises(AirflowFailException, match="for cluster other"):
        plan()


@pytest.mark.parametrize("file", ["../topics.yaml", "/etc/passwd", "topics.txt", "", "absent.yaml"])
def test_only_files_of_the_folder_are_read(cluster: MemoryCluster, file: str) -> None:
    with pytest.raises(AirflowFailException, match="file "):
        plan(file=file)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (None, "version None"),
        ([1], "a mapping is expected"),
        ({"version": 1, "topic": {}}, "'topic' is not one of"),
        ({"version": 1, "topics": {"a b": {}}}, "letters, digits"),
        ({"version": 1, "topics": {"t": {"partitions": 0}}}, "partitions 0"),
        ({"version": 1, "topics": {"t": {"partitions": True}}}, "partitions True"),
        ({"version": 1, "topics": {"t": {"replicas": 3}}}, "'replicas' is not one of"),
        ({"version": 1, "owns": "x(", "topics": {}}, "regular expression"),
        ({"version": 1, "owns": "x.*", "topics": {"t": {}}}, "does not match owns"),
        ({"version": 1, "topics": {str(n): {} for n in range(10_001)}}, "10000 are allowed"),
    ],
)
def test_a_file_that_makes_no_sense_says_where(document: Any, said: str) -> None:
    with pytest.raises(BadSettings, match=said.replace("(", r"\(")):
        Catalog.read(document)


def test_a_broken_file_is_one_line(cluster: MemoryCluster, tmp_path: Path) -> None:
    (tmp_path / "topics.yaml").write_text("a: [1\nb: }")
    with pytest.raises(AirflowFailException) as refusal:
        plan()
    assert "\n" not in str(refusal.value)


# -- approval ----------------------------------------------------------------------------------------


def approval(document: Any, **fields: Any) -> ApprovePlanOperator:
    return ApprovePlanOperator(task_id="approve", subject="s", plan=document, **fields)


def test_nobody_is_asked_about_nothing_or_where_that_is_not_wanted() -> None:
    assert approval({"partitions": []}).execute(context())["asked"] is False
    assert approval({"actions": []}).execute(context())["asked"] is False
    moves = {"partitions": [{"topic": "t", "partition": 0, "from": [1], "replicas": [2]}]}
    assert approval(moves, required="False").execute(context())["asked"] is False


def test_a_person_sees_what_would_happen(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda operator, ctx: shown.append(operator.body))
    approval({"partitions": [{"topic": "t", "partition": 0, "from": [1], "replicas": [2]}]}).execute(context())
    assert "`t-0`: [1] → [2]" in shown[0]
    approval(plan()).execute(context())
    assert "orders.created: + partitions: 2" in shown[1]


def test_a_name_does_not_turn_the_question_round(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda operator, ctx: asked.append(operator.subject))
    moves = {"partitions": [{"topic": "t", "partition": 0, "from": [1], "replicas": [2]}]}
    operator = approval(moves)
    operator.subject = "Set the offsets of group größe\u202e\nof?"
    operator.execute(context())
    assert asked == ["Set the offsets of group größe\\u202e\\nof?"]


RIGHTS = """
acls:
  - {topic: orders., pattern: prefixed, principal: "User:orders", operation: [Read, Write]}
  - {group: orders, principal: "User:orders", operation: Read}
users:
  orders: {password_conn_id: orders_password, mechanisms: [SCRAM-SHA-512]}
quotas:
  - {user: orders, producer_byte_rate: 1048576}
"""


def test_rights_are_planned_and_added_once(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-of-orders"
    monkeypatch.setenv("AIRFLOW_CONN_ORDERS_PASSWORD", json.dumps({"conn_type": "generic", "password": secret}))
    (tmp_path / "topics.yaml").write_text(FILE + RIGHTS)
    document = plan()
    assert "+ user orders: SCRAM-SHA-512, password of connection orders_password" in document["lines"]
    assert "~ quota of user orders: producer_byte_rate=1,048,576" in document["lines"]
    assert len([line for line in document["lines"] if line.startswith("+ ACL")]) == 3
    assert (cluster.acls, cluster.users, cluster.quotas) == (set(), {}, {})
    dry = apply(document, dry_run=True)
    assert (len(dry["rights"]), cluster.acls, cluster.users, cluster.quotas) == (5, set(), {}, {})
    done = apply(document)
    assert (len(done["rights"]), len(cluster.acls)) == (5, 3)
    assert [one.password for one in cluster.users.values()] == [secret]
    assert cluster.quotas[("users",), ("orders",)] == {"producer_byte_rate": 1048576.0}
    assert plan()["empty"] is True
    assert apply(document)["rights"] == []
    assert secret not in json.dumps([document, dry, done])


def test_rights_that_were_not_approved_are_not_added(cluster: MemoryCluster, tmp_path: Path) -> None:
    document = plan()
    (tmp_path / "topics.yaml").write_text(FILE + RIGHTS)
    with pytest.raises(AirflowFailException, match="not approved"):
        apply(document)
    assert (cluster.acls, cluster.users) == (set(), {})


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("users: {a: {password: hunter2}}", "'password' is not one of"),
        ("users: {a: {}}", "password_conn_id"),
        ("users: {a: {password_conn_id: c, mechanisms: PLAIN}}", "mechanism 'PLAIN'"),
        ("users: {a: {password_conn_id: c, iterations: 1}}", "between 4096"),
        ("acls: [{topic: t, principal: a, operation: Read}]", "principalType"),
        ("acls: {topic: t}", "acls: a list"),
        ("quotas: [{producer_byte_rate: 1}]", "name a user"),
        ("quotas: [{user: a, speed: 1}]", "'speed'"),
    ],
)
def test_wrong_rights_are_named(cluster: MemoryCluster, tmp_path: Path, section: str, said: str) -> None:
    (tmp_path / "topics.yaml").write_text(f"{FILE}\n{section}\n")
    with pytest.raises(AirflowFailException, match=said) as found:
        plan()
    assert "hunter2" not in str(found.value)


def test_the_file_of_the_documentation_works(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/airflow.md shows one file with topics, ACLs, users and quotas."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "airflow.md").read_text()
    shown = page.partition("### topics.yaml\n")[2].partition("\n\n")[0]
    lines = [line[4:] for line in shown.splitlines() if "cluster_id" not in line]
    smaller = "\n".join(lines).replace("replication_factor: 3", "replication_factor: 2")
    monkeypatch.setenv("AIRFLOW_CONN_ORDERS_PASSWORD", json.dumps({"conn_type": "generic", "password": "hunter2"}))
    (tmp_path / "topics.yaml").write_text(smaller)
    done = apply(plan())
    assert (done["changed"], len(done["rights"])) == (["orders.created", "orders.current"], 5)
    assert (len(cluster.acls), len(cluster.users), len(cluster.quotas)) == (3, 1, 1)
