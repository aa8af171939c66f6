"""The Spark operators' command lines, summaries and failures; no Spark is started."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import AirflowException, AirflowFailException
from logyard.operators.job_summary import JobFailed, summary
from logyard.operators.spark import (
    FAILED_SUMMARY,
    AuditSegmentsOperator,
    CompactSegmentsOperator,
    ExportSegmentsOperator,
    job_file,
)
from tests.support.airflow_tasks import Store, context, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.spark_submit import Submit, spark_at, submit

pytestmark = pytest.mark.airflow

CONNECTION = {"conn_type": "logyard", "host": "a:1,b:2", "extra": {"cluster_file": "/c/cluster.json"}}


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(CONNECTION))
    spark_at(monkeypatch, "local[*]")


def test_a_job_gets_the_cluster_and_returns_its_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = submit(monkeypatch, '{"records": 5}')
    operator = CompactSegmentsOperator(
        task_id="c",
        topics='["t", "u"]',
        options='{"force": true, "lease-ttl-s": 30, "max-failures": 0, "empty": "", "off": false}',
        spark_settings="{}",
    )
    assert operator.execute(context()) == {"records": 5}
    done = stand_in.operator
    assert Path(done.application).name == "compact.py"
    assert Path(done.application).is_file()
    assert done.application_args[:-1] == [
        "--bootstrap-server", "a:1,b:2", "--topic", "t", "--topic", "u",
        "--cluster-file", "/c/cluster.json", "--force", "--lease-ttl-s", "30", "--max-failures", "0",
        "--output",
    ]  # fmt: skip
    assert done.conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert done.env_vars["PYSPARK_PYTHON"] == sys.executable


def test_an_export_names_its_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = submit(monkeypatch, "{}")
    ExportSegmentsOperator(task_id="e", topics=["t"], destination="/out").execute(context())
    arguments = stand_in.operator.application_args
    assert arguments[arguments.index("--destination") + 1] == "/out"
    with pytest.raises(AirflowFailException, match="destination"):
        ExportSegmentsOperator(task_id="e", topics=["t"], destination="").execute(context())


def test_an_export_says_what_its_table_is_like(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, str] = {}

    def look(operator: Any, ctx: Any) -> None:
        words = operator.application_args
        said.update(zip(words[::2], words[1::2], strict=True))
        said["ddl"] = Path(said["--value-schema"]).read_text()
        Path(said["--output"]).write_text("{}")

    monkeypatch.setattr(SparkSubmitOperator, "execute", look)
    ExportSegmentsOperator(
        task_id="e",
        topics=["t"],
        destination="/out",
        table_format="parquet",
        value_format="json",
        value_schema="id BIGINT",
        partition_by='["topic", "date"]',
    ).execute(context())
    assert {k: said[k] for k in ("--format", "--value-format", "--partition-by", "ddl")} == {
        "--format": "parquet",
        "--value-format": "json",
        "--partition-by": "topic,date",
        "ddl": "id BIGINT",
    }
    assert "--mode" not in said


class Events(dict[Any, Any]):
    """`outlet_events`: what was added to which alias."""

    def __missing__(self, alias: Any) -> "Events":
        self[alias.name] = self
        return self

    def add(self, asset: Any, extra: Any) -> None:
        self["added"] = (asset.uri, json.loads(json.dumps(extra)))


def test_an_export_is_an_event_of_its_destinations_asset(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = {"t-0": {"start": 5, "end": 9, "rows": 4}}
    submit(monkeypatch, json.dumps({"rows": 4, "files": 1, "offsets": offsets}))
    events = Events()
    operator = ExportSegmentsOperator(task_id="e", topics=["t"], destination="/out")
    operator.execute(context() | {"outlet_events": events})
    uri, extra = events["added"]
    assert (uri, extra["rows"], extra["offsets"]) == ("file:///out", 4, offsets)
    assert [alias.name for alias in operator.outlets] == ["logyard_exports"]
    submit(monkeypatch, '{"rows": 0}')
    nothing = Events()
    ExportSegmentsOperator(task_id="e", topics=["t"], destination="s3://b/x").execute(
        context() | {"outlet_events": nothing}
    )
    assert nothing == {}


def test_the_connections_security_goes_by_a_private_file(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "ssl_cafile": "/ca.pem",
        "http_tokens": '{"1": "hidden-token"}',
    }
    secured = {"conn_type": "logyard", "host": "a:1", "login": "u", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(secured))
    seen: dict[str, Any] = {}

    def look(operator: Any, ctx: Any) -> None:
        arguments = operator.application_args
        path = Path(arguments[arguments.index("--security") + 1])
        seen.update(json.loads(path.read_text()), mode=path.stat().st_mode & 0o777, said=" ".join(arguments))
        tokens = Path(arguments[arguments.index("--tokens") + 1])
        seen.update(tokens=json.loads(tokens.read_text()), mode_of_tokens=tokens.stat().st_mode & 0o777)
        Path(arguments[arguments.index("--output") + 1]).write_text("{}")

    monkeypatch.setattr(SparkSubmitOperator, "execute", look)
    AuditSegmentsOperator(task_id="a", topics=["t"]).execute(context())
    assert (seen["username"], seen["password"], seen["ssl_cafile"], seen["mode"]) == ("u", "secret", "/ca.pem", 0o600)
    assert (seen["tokens"], seen["mode_of_tokens"]) == ({"1": "hidden-token"}, 0o600)
    assert "secret" not in seen["said"]
    assert "hidden-token" not in seen["said"]


def test_a_stores_credentials_go_by_a_private_file(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = {"conn_type": "aws", "login": "AKIA1", "password": "hidden-key", "extra": {"region_name": "eu-west-1"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    seen: dict[str, Any] = {}

    def look(operator: Any, ctx: Any) -> None:
        arguments = operator.application_args
        path = Path(arguments[arguments.index("--store") + 1])
        seen.update(json.loads(path.read_text()), mode=path.stat().st_mode & 0o777)
        said = [*arguments, *map(str, operator.conf.values()), *operator.env_vars.values()]
        seen["said"] = " ".join([*said, *(str(getattr(operator, name)) for name in operator.template_fields)])
        Path(arguments[arguments.index("--output") + 1]).write_text("{}")

    monkeypatch.setattr(SparkSubmitOperator, "execute", look)
    ExportSegmentsOperator(task_id="e", topics=["t"], destination="s3://b/x", store_conn_id="lake").execute(context())
    assert (seen["access_key_id"], seen["secret_access_key"], seen["region"]) == ("AKIA1", "hidden-key", "eu-west-1")
    assert seen["mode"] == 0o600
    assert "hidden-key" not in seen["said"]


def test_credentials_in_a_destination_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    submit(monkeypatch, "{}")
    with pytest.raises(AirflowFailException, match="name a connection in store_conn_id") as refused:
        ExportSegmentsOperator(task_id="e", topics=["t"], destination="s3://k:hidden@b/x").execute(context())
    assert "hidden" not in str(refused.value)


def test_settings_of_all_jobs_are_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__SPARK_SETTINGS", '{"spark.driver.host": "here", "spark.x": "1"}')
    stand_in = submit(monkeypatch, "{}")
    AuditSegmentsOperator(task_id="a", topics=["t"], spark_settings={"spark.x": "2"}).execute(context())
    conf = stand_in.operator.conf
    assert (conf["spark.driver.host"], conf["spark.x"], conf["spark.ui.enabled"]) == ("here", "2", "false")
    monkeypatch.setenv("AIRFLOW__LOGYARD__SPARK_SETTINGS", "[1]")
    with pytest.raises(AirflowFailException, match="spark_settings"):
        AuditSegmentsOperator(task_id="a", topics=["t"]).execute(context())


def test_a_job_that_failed_leaves_its_summary_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    submit(monkeypatch, '{"verdict": "bad", "findings": [1]}', fails=True)
    ctx = context()
    with pytest.raises(JobFailed, match="audit: bad"):
        AuditSegmentsOperator(task_id="a", topics=["t"]).execute(ctx)
    assert ctx["ti"].values[FAILED_SUMMARY]["findings"] == [1]


def test_an_export_that_gave_partitions_up_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    submit(monkeypatch, '{"failed": {"t-1": "t-1: no lease on its leader"}, "rows": 5}', fails=True)
    with pytest.raises(JobFailed, match="audit: t-1: no lease on its leader"):
        AuditSegmentsOperator(task_id="a", topics=["t"]).execute(context())


def row(failed: str | None = None, **figures: Any) -> dict[str, Any]:
    return {"failed": failed, "seconds": 1.0, "partitions": 1, "rows": 5, **figures}


EXPORTED = {"job": "export", "offsets": {}, "rows": 5, "dead_letters": 0, "files": 1, "bytes": 9, "failed": {}}


def test_failed_topics_are_named_and_alone_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"b": "it does not exist", "c": "no leader"}
    rows = {"a": row(), "b": row(failed["b"]), "c": row(failed["c"])}
    submit(monkeypatch, json.dumps(EXPORTED | {"by_topic": rows, "topics_failed": failed}), fails=True)
    store = Store()
    first = context(store)
    operator = ExportSegmentsOperator(task_id="e", topics=["a", "b", "c"], destination="/out")
    with pytest.raises(JobFailed, match=r"export: 2 topics failed: b, c \(b: it does not exist\)"):
        operator.execute(first)
    assert first["ti"].values["outcome"]["sentence"].startswith("3 topics: 5 rows exported")
    assert [cells[0] for cells in first["ti"].values["outcome"]["rows"]] == ["b", "c", "a"]
    assert first["ti"].values[FAILED_SUMMARY]["by_topic"]["a"] == row()

    rest = EXPORTED | {"rows": 2, "by_topic": {"b": row(), "c": row(failed["c"])}, "topics_failed": {"c": "no leader"}}
    second = submit(monkeypatch, json.dumps(rest), fails=True)
    with pytest.raises(JobFailed, match="export: c failed: no leader"):
        operator.execute(context(store))
    assert topics_of(second) == ["b", "c"]

    third = submit(monkeypatch, json.dumps(EXPORTED | {"by_topic": {"c": row()}, "topics_failed": {}}))
    ended = context(store)
    found = operator.execute(ended)
    assert topics_of(third) == ["c"]
    assert {name: one["failed"] for name, one in found["by_topic"].items()} == {"a": None, "b": None, "c": None}
    assert ended["ti"].values["outcome"]["sentence"].endswith("; 2 topics done in an earlier try")
    assert store == {}

    other = submit(monkeypatch, "{}")
    store.set("logyard_topics_done", {"given": ["x", "y"], "done": {"x": row()}})
    operator.execute(context(store))
    assert topics_of(other) == ["a", "b", "c"], "what was done belongs to other topics"


def test_what_was_done_elsewhere_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The destination came from a Variable, or the cluster from a connection, that was edited between two tries."""
    failed = {"b": "no leader"}
    summary = json.dumps(EXPORTED | {"by_topic": {"a": row(), "b": row(failed["b"])}, "topics_failed": failed})
    submit(monkeypatch, summary, fails=True)
    store = Store()
    with pytest.raises(JobFailed):
        ExportSegmentsOperator(task_id="e", topics=["a", "b"], destination="/wrong").execute(context(store))
    again = submit(monkeypatch, summary, fails=True)
    with pytest.raises(JobFailed):
        ExportSegmentsOperator(task_id="e", topics=["a", "b"], destination="/out").execute(context(store))
    assert topics_of(again) == ["a", "b"]
    rest = submit(monkeypatch, json.dumps(EXPORTED | {"by_topic": {"b": row()}, "topics_failed": {}}))
    ExportSegmentsOperator(task_id="e", topics=["a", "b"], destination="/out").execute(context(store))
    assert topics_of(rest) == ["b"]


def test_what_was_done_in_another_store_or_with_another_schema_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a store's connection stays, and so do its URLs, when its endpoint is edited between two tries."""
    failed = {"b": "no leader"}
    summary = json.dumps(EXPORTED | {"by_topic": {"a": row(), "b": row(failed["b"])}, "topics_failed": failed})
    store = Store()

    def tried(endpoint: str, value_schema: str) -> list[str]:
        monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps({"conn_type": "generic", "extra": {"endpoint": endpoint}}))
        stand_in = submit(monkeypatch, summary, fails=True)
        with pytest.raises(JobFailed):
            ExportSegmentsOperator(
                task_id="e",
                topics=["a", "b"],
                destination="s3://bucket/out",
                store_conn_id="store",
                value_format="json",
                value_schema=value_schema,
            ).execute(context(store))
        return topics_of(stand_in)

    assert tried("http://one:9000", "id BIGINT") == ["a", "b"]
    assert tried("http://one:9000", "id BIGINT") == ["b"]
    assert tried("http://two:9000", "id BIGINT") == ["a", "b"]
    assert tried("http://two:9000", "id BIGINT, name STRING") == ["a", "b"]


def test_a_topic_that_was_made_anew_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it was exported: what an earlier try did was of another topic, which had its name."""
    cluster = MemoryCluster({1: None})
    use(monkeypatch, cluster)
    client = MemoryClient(cluster)
    for name in ("a", "b", "c"):
        client.create_topic(NewTopic(name, assignment={0: (1,)}))
    ids = {name: client.witnessed([name]).topics[name].topic_id for name in ("a", "b")}
    done = {name: row(topic_id=found) for name, found in ids.items()}
    failed = {"c": "no leader"}
    summary = EXPORTED | {"by_topic": done | {"c": row(failed["c"])}, "topics_failed": failed}
    store = Store()

    def tried() -> list[str]:
        stand_in = submit(monkeypatch, json.dumps(summary), fails=True)
        with pytest.raises(JobFailed):
            ExportSegmentsOperator(task_id="e", topics=["a", "b", "c"], destination="/out").execute(context(store))
        return topics_of(stand_in)

    assert tried() == ["a", "b", "c"]
    assert tried() == ["c"]
    client.delete_topic("b")
    client.snapshot()
    assert tried() == ["c"], "it was done, and is gone"
    client.create_topic(NewTopic("b", assignment={0: (1,)}))
    assert tried() == ["b", "c"]
    cluster.running.clear()
    assert tried() == ["a", "b", "c"], "nobody tells"


def test_a_cleared_task_works_on_all_topics_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found good weeks ago says nothing of today."""
    audited = {"job": "audit", "verdict": "bad", "records": 1, "replicas": 1, "findings": {"bad": 1, "warn": 0}}
    rows = {"a": row(verdict="ok"), "b": row(verdict="bad")}
    submit(monkeypatch, json.dumps(audited | {"first_findings": [], "topics_failed": {}, "by_topic": rows}), fails=True)
    store = Store()
    operator = AuditSegmentsOperator(task_id="a", topics=["a", "b"])
    with pytest.raises(JobFailed, match="audit: bad"):
        operator.execute(context(store))
    good = {topic: row(verdict="ok") for topic in ("a", "b")}
    summary = {**audited, "verdict": "ok", "first_findings": [], "topics_failed": {}, "by_topic": good}
    again = submit(monkeypatch, json.dumps(summary))
    cleared = context(store)
    cleared["ti"].max_tries = 1
    found = operator.execute(cleared)
    assert topics_of(again) == ["a", "b"]
    assert "topics_of_earlier_tries" not in found


def test_a_topic_with_a_bad_verdict_is_audited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    audited = {"job": "audit", "verdict": "bad", "records": 1, "replicas": 1, "findings": {"bad": 1, "warn": 0}}
    audited |= {"first_findings": [], "topics_failed": {}}
    rows = {"a": row(verdict="ok"), "b": row(verdict="bad")}
    submit(monkeypatch, json.dumps(audited | {"by_topic": rows}), fails=True)
    store = Store()
    operator = AuditSegmentsOperator(task_id="a", topics=["a", "b"])
    with pytest.raises(JobFailed, match="audit: bad"):
        operator.execute(context(store))
    again = submit(monkeypatch, json.dumps(audited | {"by_topic": {"b": row(verdict="ok")}}))
    operator.execute(context(store))
    assert topics_of(again) == ["b"]


def test_a_bad_verdict_says_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    audited = {"job": "audit", "verdict": "bad", "records": 1, "replicas": 1, "findings": {"bad": 2, "warn": 0}}
    found = [{"message": f"finding {number}"} for number in range(5)]
    submit(monkeypatch, json.dumps(audited | {"first_findings": found}), fails=True)
    with pytest.raises(JobFailed, match="audit: the verdict is bad: finding 0; finding 1; finding 2 "):
        AuditSegmentsOperator(task_id="a", topics=["a"]).execute(context())


def test_without_state_between_tries_all_topics_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"a": row(), "b": row("no leader")}
    summary = json.dumps(EXPORTED | {"by_topic": rows, "topics_failed": {"b": "no leader"}})
    for _ in range(2):
        stand_in = submit(monkeypatch, summary, fails=True)
        ctx = context()
        del ctx["task_state_store"]
        with pytest.raises(JobFailed, match="b failed"):
            ExportSegmentsOperator(task_id="e", topics=["a", "b"], destination="/out").execute(ctx)
        assert topics_of(stand_in) == ["a", "b"]


def topics_of(stand_in: Submit) -> list[str]:
    words = stand_in.operator.application_args
    return [value for name, value in pairwise(words) if name == "--topic"]


def test_a_job_that_never_began_fails_as_spark_said(monkeypatch: pytest.MonkeyPatch) -> None:
    submit(monkeypatch, None, fails=True)
    with pytest.raises(AirflowException, match="ended with 1"):
        AuditSegmentsOperator(task_id="a", topics=["t"]).execute(context())


def test_topics_and_jobs_have_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    submit(monkeypatch, "{}")
    with pytest.raises(AirflowFailException, match="topic"):
        AuditSegmentsOperator(task_id="a", topics="[]").execute(context())
    for name in ("nothing", "../broker/app", ""):
        with pytest.raises(BadSettings, match="no Spark job"):
            job_file(name)


def test_the_summary_is_the_file_or_the_last_json_line(tmp_path: Path) -> None:
    output = tmp_path / "summary.json"
    assert summary(output, ["{}", '{"a": 1}', "INFO bye"]) == {"a": 1}
    output.write_text('{"b": 2}')
    assert summary(output, ['{"a": 1}']) == {"b": 2}
    output.write_text("[]")
    with pytest.raises(JobFailed):
        summary(output, ["no json"])
