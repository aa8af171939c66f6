"""Where Spark runs: which addresses, Python, files and variables a job gets there. No Spark is started."""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from logyard.broker.compiled import kernel_place
from logyard.operators.airflow_names import AirflowException, AirflowFailException
from logyard.operators.spark import AuditSegmentsOperator, ExportSegmentsOperator, job_file
from logyard.operators.spark_place import SparkPlace
from logyard.spark_jobs import carried_files, driver_jvm
from tests.support.airflow_tasks import context
from tests.support.spark_submit import spark_at, spark_submit_called_by, submit

pytestmark = pytest.mark.airflow

CONNECTION = {"conn_type": "logyard", "host": "a:1,b:2", "extra": {"cluster_file": "/c/cluster.json"}}


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(CONNECTION))
    spark_at(monkeypatch, "local[*]")


def test_settings_in_the_argument_of_airflows_own_operator_count(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = submit(monkeypatch, "{}")
    conf = {"spark.executor.memory": "8g", "spark.x": "1", "spark.ui.enabled": "true"}
    AuditSegmentsOperator(task_id="a", topics=["t"], conf=conf, spark_settings={"spark.x": "2"}).execute(context())
    found = stand_in.operator.conf
    assert (found["spark.executor.memory"], found["spark.x"], found["spark.ui.enabled"]) == ("8g", "2", "true")
    assert found["spark.driver.host"] == "127.0.0.1"


def test_templates_of_airflows_own_operator_are_rendered() -> None:
    given: dict[str, Any] = {"packages": "a:b:{{ params.version }}", "conf": {"spark.x": "{{ params.version }}"}}
    operator = ExportSegmentsOperator(task_id="e", topics=["t"], destination="/out/{{ params.version }}", **given)
    ctx = context()
    ctx["params"] = {"version": "1.2"}
    operator.render_template_fields(ctx)
    assert (operator.packages, operator.conf, operator.destination) == ("a:b:1.2", {"spark.x": "1.2"}, "/out/1.2")


def test_elsewhere_addresses_and_python_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_at(monkeypatch, "spark://master.example:7077")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    stand_in = submit(monkeypatch, "{}")
    AuditSegmentsOperator(task_id="a", topics=["t"]).execute(context())
    done = stand_in.operator
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(done.conf)
    assert "SPARK_LOCAL_IP" not in done.env_vars
    assert done.env_vars["PYSPARK_PYTHON"] == "/opt/python"
    assert done.env_vars["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[4]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077,localhost:7078", True),
        ("spark://localhost:7077,other:7077", False),
        ("spark://spark-master:7077", False),
        ("yarn", False),
        ("k8s://https://localhost:6443", False),
    ],
)
def test_a_master_is_on_this_machine_or_not(master: str, here: bool) -> None:
    assert SparkPlace(master).is_here is here


def test_kept_classes_are_used_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert "SharedArchiveFile" not in SparkPlace("local[*]").settings_of_jobs()[driver_jvm.SETTING]
    (tmp_path / "spark-classes.jsa").write_bytes(b"kept")
    options = SparkPlace("local[*]").settings_of_jobs()[driver_jvm.SETTING]
    assert f"-XX:SharedArchiveFile={tmp_path}/spark-classes.jsa" in options.split()
    assert driver_jvm.SETTING not in SparkPlace("yarn").settings_of_jobs()
    assert driver_jvm.SETTING not in SparkPlace("local[*]", is_cluster_mode=True).settings_of_jobs()
    monkeypatch.setenv("AIRFLOW__LOGYARD__SPARK_SETTINGS", json.dumps({driver_jvm.SETTING: "-Dmine"}))
    assert SparkPlace("local[*]").settings_of_jobs()[driver_jvm.SETTING] == "-Dmine"


def test_a_standalone_cluster_runs_the_driver_by_its_own_spark_submit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real provider's command and environment: no secret on a line, and nothing of Airflow's environment."""
    spark_at(monkeypatch, "spark://master.example:7077", "cluster")
    extra = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "http_tokens": '{"1": "hidden"}'}
    secured = {"conn_type": "logyard", "host": "a:1", "login": "u", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(secured))
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    words, variables = spark_submit_called_by(
        monkeypatch, ExportSegmentsOperator(task_id="a", topics=["t"], destination="/d", value_schema="id BIGINT")
    )
    jobs = job_file("export").parent
    begin = words.index("--class")
    assert words[begin : begin + 2] == ["--class", "org.apache.spark.deploy.SparkSubmit"]
    inside = words[words.index(f"file://{jobs}/driver.jar") + 1 :]
    assert inside[:5] == ["--master", "spark://master.example:7077", "--deploy-mode", "client", f"{jobs}/export.py"]
    assert "--output" not in inside
    assert "hidden" not in " ".join(words)
    assert "secret" not in " ".join(words)
    assert not [name for name in variables if name.startswith(("AIRFLOW", "SPARK_LOCAL", "JAVA"))]
    assert variables["PYSPARK_PYTHON"] == "/opt/python"

    monkeypatch.setenv(carried_files.VARIABLE, variables[carried_files.VARIABLE])
    opened = carried_files.opened(inside)
    assert carried_files.VARIABLE not in os.environ
    where = dict(pairwise(opened))
    assert Path(where["--value-schema"]).read_text() == "id BIGINT"
    assert json.loads(Path(where["--security"]).read_text())["password"] == "secret"
    assert json.loads(Path(where["--tokens"]).read_text()) == {"1": "hidden"}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://k8s.example:6443"])
def test_other_clusters_get_files_and_no_variable(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    """What the real provider submits to YARN and Kubernetes in cluster mode, with its own defaults."""
    # It looks for Kubernetes' client, which is not installed here, and uses it to stop a driver.
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    spark_at(monkeypatch, master, "cluster")
    extra = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    secured = {"conn_type": "logyard", "host": "a:1", "login": "u", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(secured))
    words, variables = spark_submit_called_by(monkeypatch, AuditSegmentsOperator(task_id="a", topics=["t"]))
    where = dict(pairwise(words))
    assert (where["--master"], where["--deploy-mode"]) == (master, "cluster")
    assert (Path(where["--files"]).name, where["--security"]) == ("security.json", "security.json")
    assert words[words.index("--bootstrap-server") - 1] == str(job_file("audit"))
    assert "secret" not in " ".join(words)
    assert not [word for word in words if word.startswith(("spark.yarn.appMasterEnv", "spark.kubernetes.driverEnv"))]
    assert variables is None, "spark-submit has this process's own"
    own = {"spark.driver.host", "spark.driver.bindAddress"}
    assert not own & {word.partition("=")[0] for word in words}


def test_the_jobs_on_workers_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_at(monkeypatch, "spark://master.example:7077", "cluster")
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({"conn_type": "logyard", "host": "a:1"}))
    monkeypatch.setenv("AIRFLOW__LOGYARD__SPARK_JOBS_ON_WORKERS", "/opt/jobs")
    words, _ = spark_submit_called_by(monkeypatch, AuditSegmentsOperator(task_id="a", topics=["t"]))
    assert words[words.index("file:///opt/jobs/driver.jar") + 5] == "/opt/jobs/audit.py"


def test_what_no_driver_in_a_standalone_cluster_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({"conn_type": "logyard", "host": "a:1"}))
    spark_at(monkeypatch, "spark://master.example:6066", "cluster")
    with pytest.raises(AirflowFailException, match="name its own port"):
        AuditSegmentsOperator(task_id="a", topics=["t"]).execute(context())
    spark_at(monkeypatch, "spark://master.example:7077", "cluster")
    long = ", ".join(f"column_{number} BIGINT" for number in range(10_000))
    with pytest.raises(AirflowFailException, match="deploy-mode client"):
        ExportSegmentsOperator(task_id="a", topics=["t"], destination="/d", value_schema=long).execute(context())
    monkeypatch.setattr("logyard.operators.standalone_status.need", lambda endpoint: None)
    with pytest.raises(AirflowException, match="env_vars is not supported in standalone-cluster mode"):
        AuditSegmentsOperator(task_id="a", topics=["t"], env_vars={"A": "b"}).execute(context())


def test_a_driver_in_the_cluster_gets_its_files_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_at(monkeypatch, "yarn", "cluster")
    extra = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "http_tokens": '{"1": "hidden"}'}
    secured = {"conn_type": "logyard", "host": "a:1", "login": "u", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(secured))
    sent: dict[str, Any] = {}

    def look(operator: Any, ctx: Any) -> None:
        sent["files"] = [(Path(name).name, Path(name).read_text()) for name in operator.files.split(",")]
        sent["words"], sent["env"] = operator.application_args, operator.env_vars

    monkeypatch.setattr(SparkSubmitOperator, "execute", look)
    operator = ExportSegmentsOperator(task_id="a", topics=["t"], destination="/d", value_schema="id BIGINT")
    done = operator.execute(context())
    assert done == {"job": "export", "summary": "in the driver's log"}
    assert [name for name, _ in sent["files"]] == ["value_schema.ddl", "security.json", "tokens.json"]
    assert sent["files"][0][1] == "id BIGINT"
    where = dict(zip(sent["words"], sent["words"][1:], strict=False))
    assert (where["--security"], where["--tokens"]) == ("security.json", "tokens.json")
    assert (where["--value-schema"], "--output" in where, sent["env"]) == ("value_schema.ddl", False, {})


def test_a_cluster_file_is_for_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_at(monkeypatch, "yarn", "cluster")
    with pytest.raises(AirflowFailException, match="cluster_file is for one machine"):
        AuditSegmentsOperator(task_id="a", topics=["t"]).execute(context())


def test_kernels_are_kept_where_the_job_looks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place in /tmp is chosen by the job, which looks at whose it is; one that somebody chose is kept."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    variables = SparkPlace("local[*]").environment()
    assert kernel_place.PRIVATE in variables
    assert kernel_place.CHOSEN not in variables, "spark-submit has this process's own variables besides"


def test_the_first_jvm_of_spark_submit_is_a_quick_one_unless_somebody_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS", raising=False)
    assert "-XX:TieredStopAtLevel=1" in SparkPlace("local[*]").environment()["SPARK_LAUNCHER_OPTS"]
    assert SparkPlace("spark://here:7077", is_cluster_mode=True).environment() == {}
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Xint")
    assert SparkPlace("yarn").environment()["SPARK_LAUNCHER_OPTS"] == "-Xint"
