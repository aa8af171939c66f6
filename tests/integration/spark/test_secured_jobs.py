"""The Spark jobs on `cluster start --secure`: a user with the rights of docs/leases.md, and no secret left behind."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from logyard.cli import command_config
from logyard.local import files
from tests.support.job_process import ROOT, job_environment

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS, EVENTS, KEYS = 2, 4000, 50


def logyard(*words: str, check: bool = True) -> str:
    command = [sys.executable, "-m", "logyard.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done.stdout + done.stderr


class Yard:
    """A secured cluster with a compacted topic, and the user `jobs`, who may audit."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        described = files.read_json(directory / "cluster.json")
        self.bootstrap, self.admin_file = str(described["bootstrap"]), str(described["command_config"])
        self.password = secrets.token_urlsafe(16)
        self.admin = command_config.settings(self.bootstrap, command_config.read(Path(self.admin_file)))

    def command(self, *words: str) -> None:
        logyard(*words[:2], "--bootstrap-server", self.bootstrap, "--command-config", self.admin_file, *words[2:])

    def allow(self, *words: str) -> None:
        self.command("acls", "add", "--allow-principal", "User:jobs", *words)

    def set_up(self) -> None:
        settings = (
            "cleanup.policy=compact",
            "segment.bytes=20000",
            "min.cleanable.dirty.ratio=1",
        )  # not by the brokers themselves
        words = [word for one in settings for word in ("--config", one)]
        numbers = ("--partitions", str(PARTITIONS), "--replication-factor", "2")
        self.command("topics", "create", "--topic", "events", *numbers, *words)
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "security.protocol": "SASL_SSL",
                "sasl.mechanisms": "SCRAM-SHA-512",
                "sasl.username": self.admin.username,
                "sasl.password": self.admin.password,
                "ssl.ca.location": self.admin.ssl_cafile,
                "batch.size": 4000,
            }
        )
        for number in range(EVENTS):
            producer.produce("events", key=str(number % KEYS), value=f"value {number}" * 5)
        assert producer.flush(60) == 0
        file = self.directory / "jobs.password"
        file.touch(mode=0o600)
        file.write_text(self.password)
        self.command("users", "add", "--user", "jobs", "--password-file", str(file))
        self.allow("--operation", "Read", "--operation", "Describe", "--topic", "events")
        self.allow("--operation", "Describe", "--operation", "DescribeConfigs", "--cluster")
        login = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "username": "jobs",
            "password": self.password,
            "ssl_cafile": self.admin.ssl_cafile,
        }
        files.write_json(self.directory / "jobs.json", login, files.PRIVATE)

    def submit(self, job: str, tmp_path: Path, status: int = 0) -> dict[str, Any]:
        """Run a job; no secret is in its output, its event log, or its command line."""
        events = tmp_path / "spark-events"
        events.mkdir(exist_ok=True)
        command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
        for setting in (
            "spark.ui.enabled=false",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.driver.host=127.0.0.1",
            "spark.eventLog.enabled=true",
            "spark.eventLog.compress=false",
            f"spark.eventLog.dir=file:{events}",
        ):
            command += ["--conf", setting]
        command += [str(ROOT / "spark_jobs" / f"{job}.py"), "--bootstrap-server", self.bootstrap, "--topic", "events"]
        command += ["--security", str(self.directory / "jobs.json"), *(["--force"] if job == "compact" else [])]
        environment = job_environment(tmp_path / "numba")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == status, f"{job}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        left = done.stdout + done.stderr + "".join(file.read_text() for file in events.rglob("*") if file.is_file())
        left += "".join(log.read_text(errors="replace") for log in (self.directory / "logs").glob("broker-*.log"))
        assert self.password not in left
        assert "lyr1." not in left
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    directory = tmp_path_factory.mktemp("secure") / "yard"
    try:
        logyard("cluster", "start", "--dir", str(directory), "--brokers", "2", "--secure")
        made = Yard(directory)
        made.set_up()
        yield made
    finally:
        logyard("cluster", "stop", "--dir", str(directory), check=False)


def test_an_auditor_audits_and_compacts_only_with_the_right_to(yard: Yard, tmp_path: Path) -> None:
    audited = yard.submit("audit", tmp_path)
    assert (audited["verdict"], audited["records"]) == ("ok", 2 * EVENTS)
    refused = yard.submit("compact", tmp_path, status=1)
    assert "User:jobs needs Alter on the topic events" in json.dumps(refused)
    yard.allow("--operation", "Alter", "--topic", "events")
    compacted = yard.submit("compact", tmp_path)
    assert (compacted["compacted"], compacted["replicas_compacted"]) == (PARTITIONS, 2 * PARTITIONS)
    assert compacted["records_after"] < EVENTS
    again = yard.submit("audit", tmp_path)
    assert again["verdict"] == "ok"
    assert 2 * compacted["records_after"] <= again["records"] < audited["records"]
    # Every run has ended: nothing that was given to a task is of use any more.
    for broker in range(2):
        (kept,) = (yard.directory / f"broker-{broker}").rglob("http.runs")
        assert json.loads(kept.read_text()) == []
        assert os.stat(kept).st_mode & 0o777 == 0o600
