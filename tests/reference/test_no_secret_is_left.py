"""Nothing that a run leaves behind holds a secret that it used: outputs, logs, XComs, rendered fields, plans, event
logs, the UI's pages, executors' files, exceptions, and the command lines of all processes while it runs. With the
right password and with a wrong one, on Apache Kafka and on ours."""

import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk.exceptions import AirflowException

from logyard.admin.settings import ClusterSettings
from logyard.operators.access import CreateAclsOperator, SetUserOperator
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.spark import AuditSegmentsOperator
from tests.support import airflow_home, kafka, secured
from tests.support.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
WRONG = "wrong-password-17"
NEW = "new-password-of-zoe"
ALONE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}


@pytest.fixture(scope="module", params=["O", "K"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    airflow_home.prepare()
    with secured.running(tmp_path_factory.mktemp("secured"), request.param, ALONE) as running:
        running.create("flights")
        yield running


def leaks(world: Secured, texts: dict[str, str]) -> list[str]:
    """Where a secret is, as it is or in base64."""
    used = [*world.used_secrets, WRONG, NEW]
    forms = [*used, *(b64encode(one.encode()).decode().rstrip("=") for one in used)]
    return [f"{where}: {form[:6]}…" for where, text in texts.items() for form in forms if form in text]


def files(directory: Path) -> dict[str, str]:
    return {str(path): path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file()}


def run(*command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )
    return done.stdout + done.stderr


def test_the_search_finds_what_is_there(world: Secured) -> None:
    secret = world.users["alice"].scram
    assert leaks(world, {"a": f"x{secret}y", "b": b64encode(secret.encode()).decode(), "c": "harmless"})[0][0] == "a"
    assert len(leaks(world, {"b": b64encode(secret.encode()).decode()})) == 1


@contextmanager
def command_lines() -> Iterator[dict[str, str]]:
    """The command lines of the processes that this one starts, and theirs, by the word that names their program."""
    found: dict[str, str] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    line = " ".join(child.cmdline())
                    found[f"{child.pid} {line[:40]} {len(line)}"] = line

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("password", ["right", "wrong"])
def test_spark(world: Secured, tmp_path: Path, password: str) -> None:
    """Executors are processes of their own; `left` gets what they write."""
    settings = ClusterSettings.read(world.bootstrap(), world.java("admin")).security()
    if password == "wrong":
        settings["password"] = WRONG
    security = tmp_path / "security.json"
    security.touch(mode=0o600)
    security.write_text(json.dumps(settings))
    left = tmp_path / "left"
    words = ("-m", "tests.support.secured_driver", world.bootstrap(), "flights", str(security), str(left))
    with command_lines() as lines:
        said = run(*words)
    assert ("written" in said) == (password == "right"), said[-3000:]
    found = {"output": said, **lines, **files(left)}
    executors = [line for line in lines.values() if "CoarseGrainedExecutorBackend" in line]
    assert executors, "executors were processes"
    assert any(name.endswith("stderr") and "/work/" in name for name in found), "executors' files were looked at"
    assert any("events" in name and "SparkListenerSQLExecutionStart" in text for name, text in found.items())
    assert "spark.eventLog.dir" in found[str(left / "environment.json")]
    assert leaks(world, found) == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_commands(world: Secured, tmp_path: Path, mechanism: str) -> None:
    """What a user sees, and what is in the list of processes."""
    wrong = {
        key: value.replace(world.password("alice", mechanism), WRONG).replace(world.users["alice"].oauth, WRONG)
        for key, value in world.java("alice", mechanism).items()
    }
    path = tmp_path / "wrong.properties"
    path.touch(mode=0o600)
    path.write_text(
        "".join(
            f"{key}={value}\n"
            for key, value in {**wrong, "request.timeout.ms": "4000", "default.api.timeout.ms": "9000"}.items()
        )
    )
    texts = {}
    for file in (world.file("alice", mechanism), path):
        words = ("topics", "list", "--bootstrap-server", world.bootstrap(), "--command-config", str(file))
        texts[str(file)] = run("-m", "logyard.cli.main", *words)
    # A broker closes soon after a refusal: a client that is late reads the end of the connection alone.
    assert "refuse" in texts[str(path)] or "credentials" in texts[str(path)]
    assert len([line for line in texts[str(path)].splitlines() if line.startswith("logyard: ")]) == 1
    assert leaks(world, texts) == []


def test_a_job_of_airflow(
    world: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """spark-submit gets the log-in by a file; Apache Kafka has no leases, so the job fails there, and says why."""
    from tests.support.airflow_tasks import context

    caplog.set_level(logging.DEBUG)
    extra = {**world.librdkafka("admin"), "cluster_file": str(world.cluster.directory / "cluster.json")}
    connection = {"conn_type": "logyard", "host": world.bootstrap(), "extra": extra}
    spark = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    (tmp_path / "events").mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    audit = AuditSegmentsOperator(
        task_id="audit",
        topics=["flights"],
        spark_settings={**settings, "spark.eventLog.dir": (tmp_path / "events").as_uri()},
    )
    told, texts = context(), {}
    with command_lines() as lines:
        try:
            texts["result"] = json.dumps(audit.execute(told))
        except Exception:
            texts["exception"] = traceback.format_exc()
    if "result" in texts:
        assert json.loads(texts["result"])["verdict"] == "ok"
    else:
        assert "is it a Logyard broker?" in texts["exception"], texts["exception"]  # Apache Kafka has no HTTP side
    rendered = {name: getattr(audit, name) for name in audit.template_fields}
    texts |= {"xcom": json.dumps([told["ti"].values, rendered], default=str), "log": caplog.text}
    submitted = [line for line in lines.values() if "spark-submit" in line or "SparkSubmit" in line]
    assert any("--security" in line for line in submitted), submitted
    assert any("SparkListenerApplicationStart" in text for text in files(tmp_path / "events").values())
    assert leaks(world, {**texts, **lines, **files(tmp_path / "events")}) == []


def test_airflow(world: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from tests.support.airflow_tasks import context

    caplog.set_level(logging.DEBUG)
    connection: dict[str, Any] = {
        "conn_type": "logyard",
        "host": world.bootstrap(),
        "extra": {**world.librdkafka("admin"), "total_timeout_s": 20},
    }
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_CONN_ZOE", json.dumps({"conn_type": "generic", "password": NEW}))
    texts: dict[str, str] = {}
    acl = {"topic": "flights", "principal": "User:zoe", "operation": "Read"}
    for operator in (
        SetUserOperator(task_id="user", user="zoe", password_conn_id="zoe"),
        CreateAclsOperator(task_id="acls", acls=[acl]),
    ):
        told = context()
        result = operator.execute(told)
        assert result.get("set") or result.get("created")
        rendered = {name: getattr(operator, name) for name in operator.template_fields}
        texts[operator.task_id] = json.dumps([result, told["ti"].values, rendered], default=str)
    good, said = ClusterHook().test_connection()
    assert good, said
    wrong = {**connection, "extra": {**connection["extra"], "sasl.password": WRONG}}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(wrong))
    good, refused = ClusterHook().test_connection()
    assert (good, "SCRAM-SHA-512" in refused) == (False, True)
    try:
        CreateAclsOperator(task_id="acls", acls=[acl]).execute(context())
    except (AirflowException, Exception):
        texts["exception"] = traceback.format_exc()
    assert "refused" in texts["exception"] or "credentials" in texts["exception"]
    texts |= {"log": caplog.text, "test": said + refused, "hook": repr(ClusterHook().settings)}
    assert len(texts["log"]) > 200
    assert leaks(world, texts) == []
