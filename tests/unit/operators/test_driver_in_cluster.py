"""A driver inside a standalone cluster, whatever becomes of it: the real provider with its curl, a master's REST side
in this process, and a program in place of spark-submit that prints a driver's id."""

import gc
import json
import re
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.operators import standalone_status
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.job_summary import JobFailed
from logyard.operators.spark import AuditSegmentsOperator
from tests.support.airflow_tasks import Store, context
from tests.support.needed import lacks
from tests.support.spark_rest import RestSide

pytestmark = pytest.mark.airflow

DRIVER = "driver-20261125220000-0007"
KEY = "spark_job_id"


class Cluster:
    """Where the operator is told to run, and how often it has submitted there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._monkeypatch, self._submissions = monkeypatch, directory / "submissions"
        program = directory / "bin" / "spark3-submit"
        program.parent.mkdir()
        # Where there are several masters, the provider asks it how the driver is.
        program.write_text(
            f"#!/bin/sh\n[ $3 = --status ] || echo again >> {self._submissions}\n"
            f"echo submitted as {DRIVER}, state is x\n"
            'echo \'"submissionId" : "x"\'; echo \'"driverState" : "FINISHED",\'\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        # The provider asks three times what cannot be answered, by this library.
        monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
        # Nobody is there: no proxy of the environment is asked.
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({"conn_type": "logyard", "host": "a:1"}))

    @property
    def submissions(self) -> int:
        return len(self._submissions.read_text().splitlines()) if self._submissions.exists() else 0

    def run(self, rest_port: int, store: Store, masters: str = "127.0.0.1:7077", **extra: Any) -> dict[str, Any]:
        extra = {"deploy-mode": "cluster", "rest-port": rest_port, "spark-binary": "spark3-submit", **extra}
        found = {"conn_type": "spark", "host": f"spark://{masters}", "extra": extra}
        self._monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(found))
        return dict(AuditSegmentsOperator(task_id="a", topics=["t"], status_poll_interval=0).execute(context(store)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    if not standalone_status.CURL.exists():
        lacks(f"{standalone_status.CURL}, by which Airflow's provider asks for drivers")
    yield Cluster(monkeypatch, tmp_path)
    # The provider closes no pipe of spark-submit and curl: left to chance, they are the warning of some later test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_a_closed_status_port_is_found_before_anything_is_submitted(cluster: Cluster) -> None:
    with socket.socket() as held:  # nobody else can listen there meanwhile
        held.bind(("127.0.0.1", 0))
        closed = held.getsockname()[1]
        said = f"127.0.0.1:{closed} does not tell .*refused.*spark.master.rest.enabled=true"
        with pytest.raises(JobFailed, match=said):
            cluster.run(closed, Store())
    assert cluster.submissions == 0


@pytest.mark.parametrize("plain", [b"<html>a page</html>", b"[]", b'{"status": "UP"}', b"[" * 5000])
def test_what_is_not_a_master_is_found_before_anything_is_submitted(cluster: Cluster, plain: bytes) -> None:
    """The provider would take it for a driver that runs, for ever."""
    with RestSide({}, plain) as rest, pytest.raises(JobFailed, match="does not tell"):
        cluster.run(rest.port, Store())
    assert cluster.submissions == 0


def test_a_scheme_that_is_no_web_address_is_refused(cluster: Cluster) -> None:
    with pytest.raises(AirflowFailException, match="http or https is expected"):
        cluster.run(6066, Store(), **{"rest-scheme": "file"})
    assert cluster.submissions == 0


def test_without_curl_nothing_is_submitted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(standalone_status, "CURL", tmp_path / "curl")
    with RestSide({}) as rest, pytest.raises(AirflowFailException, match="curl is missing"):
        cluster.run(rest.port, Store())
    assert cluster.submissions == 0


def test_a_task_that_is_cleared_after_its_success_runs_again(cluster: Cluster) -> None:
    store = Store()
    with RestSide({DRIVER: {"driverState": "FINISHED"}}) as rest:
        assert cluster.run(rest.port, store) == {"job": "audit", "summary": "in the driver's log"}
        assert cluster.submissions == 1
        cluster.run(rest.port, store)
    assert cluster.submissions == 2


def test_a_try_finds_the_driver_of_an_earlier_one_again(cluster: Cluster) -> None:
    """One that died before it could say that the driver had ended well."""
    store = Store({KEY: DRIVER})
    with RestSide({DRIVER: {"driverState": "FINISHED"}}) as rest:
        cluster.run(rest.port, store)
    assert cluster.submissions == 0
    assert KEY not in store


def test_a_driver_that_the_master_has_forgotten_is_submitted_again(cluster: Cluster) -> None:
    store = Store({KEY: "driver-of-before"})
    with RestSide({DRIVER: {"driverState": "FINISHED"}}) as rest:
        cluster.run(rest.port, store)
    assert cluster.submissions == 1


def test_a_master_that_reads_its_drivers_back_is_not_asked_to_run_another(cluster: Cluster) -> None:
    message = "Exception from the cluster:\njava.lang.Exception: Current state is not alive: RECOVERING."
    with (
        RestSide({"driver-of-before": {"success": False, "message": message}}) as rest,
        pytest.raises(RuntimeError, match="not alive"),
    ):
        cluster.run(rest.port, Store({KEY: "driver-of-before"}))
    assert cluster.submissions == 0


@pytest.mark.parametrize("alive", ["127.0.0.1", "127.0.0.2"])
def test_a_master_on_standby_does_not_hide_that_the_living_one_has_forgotten_a_driver(
    cluster: Cluster, alive: str
) -> None:
    """Its refusal came last, and each try failed."""
    message = "Exception from the cluster:\njava.lang.Exception: Current state is not alive: STANDBY."
    standby = "127.0.0.2" if alive == "127.0.0.1" else "127.0.0.1"
    gone = {"driver-of-before": {"success": False, "message": message}}
    masters = "127.0.0.1:7077,127.0.0.2:7077"
    with RestSide({}, address=(alive, 0)) as rest:
        with RestSide(gone, address=(standby, rest.port)):
            cluster.run(rest.port, Store({KEY: "driver-of-before"}), masters)
        assert cluster.submissions == 1
        cluster.run(rest.port, Store({KEY: "driver-of-before"}), masters)  # the other host is away
    assert cluster.submissions == 2


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (
            {"driverState": "FAILED", "workerHostPort": "10.0.0.7:41000"},
            f"it ran on 10.0.0.7:41000; .* folder {DRIVER}",
        ),
        (
            {"driverState": "ERROR", "message": "Exception from the cluster:\njava.io.IOException: no jar\n\tat a.b"},
            "java.io.IOException: no jar$",
        ),
        ({"driverState": "KILLED"}, "exited with status KILLED$"),
    ],
)
def test_a_driver_that_failed_is_said_with_its_worker_and_reason(
    cluster: Cluster, ended: dict[str, Any], said: str
) -> None:
    outcome = f"audit: .*{DRIVER} .*exited with status {ended['driverState']}"
    with RestSide({DRIVER: ended}) as rest, pytest.raises(JobFailed, match=outcome) as failed:
        cluster.run(rest.port, Store())
    assert re.search(said, str(failed.value)), failed.value
    assert cluster.submissions == 1


def test_only_curl_is_told_to_ask_no_proxy() -> None:
    end = ["/usr/bin/curl", "--max-time", "30", "-X", "POST", "http://master:6066/v1/submissions/kill/driver-1"]
    assert standalone_status.direct(end) == ["/usr/bin/curl", "--noproxy", "*", *end[1:]]
    asked = ["spark-submit", "--master", "spark://a:7077,b:7077", "--status", "driver-1"]
    assert standalone_status.direct(asked) == asked
