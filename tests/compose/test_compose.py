"""docker-compose.yaml as it is, on hosts that share no files: the whole of `make demo` from a machine outside.

Every kind of container is killed on the way, then all of them at once; then they are removed and made again from their
volumes. Nothing acknowledged may be lost, and every service has to go on. The figures go to build/compose.json, what
the containers said to build/compose-logs.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from rich.console import Console

from logyard.local import files
from logyard.local.airflow.api import AirflowApi, Run
from logyard.local.demo import checks, dataset
from logyard.local.demo.dags import DagRuns
from logyard.local.demo.progress import Display
from logyard.local.demo.steps import DAGS, STEPS, TOPICS, Yard
from logyard.local.errors import LocalError
from tests.compose import images
from tests.compose.composed import PROJECT, UI, Composed, eventually, services
from tests.compose.images import ROOT, Podman
from tests.compose.site import BROKERS, ComposedSite

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3600)]

LAST = STEPS[-1]
ONCE = {"prepare", "airflow-migrate"}
# One container of each kind but the broker, which a step of the demo kills; of ZooKeeper it is the leader.
KINDS = (
    "zookeeper",
    "postgres",
    "airflow-api-server",
    "airflow-scheduler1",
    "airflow-dag-processor",
    "airflow-triggerer",
    "spark-master",
    "spark-worker1",
)
PATIENCE_S = 300.0


class Platform:
    """The running containers, the yard of the demo's steps, and what was measured."""

    def __init__(self, composed: Composed, directory: Path) -> None:
        self.composed = composed
        self.figures: dict[str, Any] = {}
        self._directory = directory
        self._yard: Yard | None = None
        self._site: ComposedSite | None = None

    @property
    def site(self) -> ComposedSite:
        """Made at the first use, when the brokers' containers are there."""
        if self._site is None:
            self._site = ComposedSite(self.composed, self._directory)
        return self._site

    @property
    def yard(self) -> Yard:
        """Made at the first use, when the services answer, and when all DAGs are known."""
        if self._yard is None:
            display = Display(Console(width=160))
            password = eventually(self.composed.password, "Airflow's password", PATIENCE_S)
            dags = DagRuns(UI, "admin", password, display.note, timeout_s=120.0)
            dags.await_known(DAGS)
            self._yard = Yard(self.site, dags, display, dataset.load())
        return self._yard

    def api(self) -> AirflowApi:
        return AirflowApi(UI, "admin", self.composed.password(), timeout_s=120.0)

    def wait_healthy(self) -> None:
        """Wait until every service that stays says that it is well, Airflow is, and all replicas are in sync."""
        for service in services().keys() - ONCE:
            eventually(lambda: self.composed.healthy(service), f"health of {service}", PATIENCE_S)  # noqa: B023 # asked at once
        with self.api() as api:
            api.wait_healthy(PATIENCE_S)
        eventually(lambda: self.site.in_sync(), "three brokers, all replicas in sync", PATIENCE_S)

    def require_content(self) -> None:
        """A stock consumer reads exactly what was acknowledged, and was not compacted away."""
        for topic in TOPICS:
            difference = checks.compare(self.yard.expected[topic], checks.read_topic(self.yard.reach, topic))
            assert not difference, f"{topic}: {difference}"

    def close(self) -> None:
        if self._yard is not None and self._yard.traffic is not None:
            self._yard.traffic.close()
        files.write_json(ROOT / "build" / "compose.json", self.figures)
        self.composed.keep_logs(ROOT / "build" / "compose-logs")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    begun = time.monotonic()
    try:
        podman = Podman.of_tests()
        images.make_all(podman)
    except LocalError as error:
        if os.environ.get("LOGYARD_REQUIRE"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    made = time.monotonic()
    with Composed(podman) as running:
        platform = Platform(running, tmp_path_factory.mktemp("outside"))
        platform.figures |= {"images_s": round(made - begun, 1), "up_s": round(time.monotonic() - made, 1)}
        try:
            yield platform
        finally:
            platform.close()


@pytest.fixture(scope="module")
def loaded(platform: Platform) -> Platform:
    """All steps of the demo but the last were taken: records are there, and a producer goes on sending."""
    for step in STEPS[:-1]:
        begun = time.monotonic()
        figures = step.do(platform.yard)
        platform.figures[step.name] = {"seconds": round(time.monotonic() - begun, 1), **figures}
    return platform


@pytest.fixture(scope="module")
def audited(loaded: Platform) -> Platform:
    """The last step was taken, too: nothing was lost, and nothing is sent any more."""
    begun = time.monotonic()
    figures = LAST.do(loaded.yard)
    loaded.figures[LAST.name] = {"seconds": round(time.monotonic() - begun, 1), **figures}
    return loaded


def test_the_platform_comes_up_by_itself(platform: Platform) -> None:
    platform.wait_healthy()
    states = platform.composed.states()
    assert {name: state for name, state in states.items() if state != "running"} == dict.fromkeys(ONCE, "exited")


def test_a_user_finds_the_cluster_and_runs_commands_in_it(platform: Platform) -> None:
    head = (ROOT / "docker-compose.yaml").read_text().partition("\nx-")[0]
    commands = re.findall(r"^#   docker compose exec (\S+) (.+)$", head, re.MULTILINE)
    assert len(commands) == 3
    passwords, _, authority = [platform.composed.exec(service, *command.split()) for service, command in commands]
    assert json.loads(passwords).keys() == {"admin"}
    assert authority.startswith("-----BEGIN CERTIFICATE-----")
    with platform.api() as api:
        connections = api.get("/logyard/api/connections")["connections"]
        brokers = api.get("/logyard/api/brokers", conn_id="logyard_default")["brokers"]
    assert [(one["conn_id"], one["problem"]) for one in connections] == [("logyard_default", None)]
    assert {one["id"] for one in brokers} == BROKERS.keys()


def test_a_dag_of_the_users_own_runs_on_a_scheduler(platform: Platform) -> None:
    with platform.api() as api:
        api.wait_dag("of_the_user", 180)
        host = api.xcom(api.run_dag("of_the_user", {}, 300), "host")
    assert host in ("airflow-scheduler1", "airflow-scheduler2")


def test_the_main_job_is_done_from_outside(loaded: Platform) -> None:
    assert loaded.figures["compact"]["records_after"] < loaded.figures["compact"]["records_before"]


def test_no_worker_compiles_what_the_image_has(loaded: Platform) -> None:
    """What is compiled there is read, and nobody but its user could have put something else in its place."""
    look = ("sh", "-c", 'stat -c "%a %U" "$NUMBA_CACHE_DIR"; find "$NUMBA_CACHE_DIR" -name "*.nbc" | sort')
    made = loaded.composed.podman.run("run", "--rm", "--network", "none", images.OURS, *look).stdout
    assert made.startswith("700 logyard\n/")
    for worker in ("spark-worker1", "spark-worker2"):
        assert loaded.composed.exec(worker, *look) == made, worker


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_container_comes_back(kind: str, loaded: Platform) -> None:
    begun = time.monotonic()
    loaded.composed.kill(zookeeper_leader(loaded.composed) if kind == "zookeeper" else kind)
    loaded.wait_healthy()
    if kind.startswith("spark"):
        loaded.yard.run("logyard_audit_replicas", topics=[TOPICS[1]])
    else:
        loaded.yard.run("logyard_create_topic", topic=f"after-{kind}", partitions=3, replication_factor=3)
    loaded.figures[f"killed {kind}"] = round(time.monotonic() - begun, 1)


def zookeeper_leader(composed: Composed) -> str:
    ask = "exec 3<>/dev/tcp/127.0.0.1/2181 && echo srvr >&3 && cat <&3"
    ensemble = [name for name in services() if name.startswith("zookeeper")]
    return next(name for name in ensemble if "Mode: leader" in composed.exec(name, "bash", "-c", ask))


def test_a_job_goes_on_when_its_worker_dies(loaded: Platform) -> None:
    busy = "ls /var/lib/spark/app-*/*/stdout"  # an executor's folder, while it runs
    with loaded.api() as api:
        loaded.composed.exec("spark-worker1", "sh", "-c", "rm -rf /var/lib/spark/app-*")
        run = api.trigger("logyard_audit_replicas", {"topics": list(TOPICS)})
        eventually(lambda: loaded.composed.exec("spark-worker1", "sh", "-c", busy), "an executor", 120)
        progress = eventually(lambda: progress_of(api, run), "its first line of progress", PATIENCE_S)
        loaded.composed.kill("spark-worker1")
        loaded.figures["worker killed after"] = progress[0]
        api.wait_run(run, 600)


def progress_of(api: AirflowApi, run: Run) -> list[str]:
    """Return what the tasks of a run of audits have said of their progress so far."""
    lines = [line for task in api.tasks(run) for line in api.log(run, task)]
    return [line for line in lines if re.search(r"audit: .*\d of \d+ partitions", line)]


def test_nothing_was_lost(audited: Platform) -> None:
    assert audited.figures[LAST.name]["lost"] == 0
    assert audited.figures[LAST.name]["events_sent_meanwhile"] > 1000


def test_all_hosts_lose_power_at_once(audited: Platform) -> None:
    begun = time.monotonic()
    audited.composed.kill(*(services().keys() - ONCE))
    audited.wait_healthy()
    audited.figures["all killed"] = round(time.monotonic() - begun, 1)
    audited.require_content()


def test_a_second_up_changes_nothing(audited: Platform) -> None:
    running = services().keys() - ONCE
    before = [audited.composed.process(service) for service in running]
    password = audited.composed.password()
    audited.composed.compose("up", "--detach", timeout_s=600)
    assert [audited.composed.process(service) for service in running] == before
    assert audited.composed.password() == password


def test_no_secret_is_in_logs_commands_or_variables(platform: Platform) -> None:
    volume = f"{PROJECT}_authority:/a:ro"
    words = ("run", "--rm", "--user", "root", "--volume", volume, "--entrypoint", "cat", images.OURS)
    passwords = json.loads(platform.composed.podman.run(*words, "/a/passwords.json").stdout)
    passwords |= json.loads(platform.composed.podman.run(*words, "/a/airflow.json").stdout)
    of_processes = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true"
    for service in platform.composed.states():
        said = platform.composed.logs(service, 100_000) + platform.composed.inspected(service)
        if service not in ONCE:
            said += platform.composed.exec(service, "sh", "-c", of_processes)
        assert not [name for name, password in passwords.items() if password in said], service


def test_containers_are_removed_and_made_again(audited: Platform) -> None:
    """As for another version: `down` and `up` keep records, users, passwords, and what tasks have logged."""
    password = audited.composed.password()
    with audited.api() as api:
        run = api.run_dag("of_the_user", {}, 300)
    # Kept in a variable: a client that nothing refers to ends before its answer is there.
    admin = AdminClient({**audited.yard.reach, "log_level": 0})
    admin.delete_topics(["after-postgres"])["after-postgres"].result(60)
    begun = time.monotonic()
    audited.composed.compose("down", "--timeout", "60", timeout_s=900)
    assert audited.composed.states() == {}
    audited.composed.up()
    audited.wait_healthy()
    audited.figures["down and up"] = round(time.monotonic() - begun, 1)
    assert audited.composed.password() == password
    audited.require_content()
    assert "after-postgres" not in admin.list_topics(timeout=30).topics
    with audited.api() as api:
        assert any("said by the user's task" in line for line in api.log(run, api.tasks(run)[0]))
