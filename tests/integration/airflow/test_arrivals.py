"""Records that start DAG runs, with real brokers and a real triggerer that is killed: none is lost."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_yard import Yard, running_yard
from tests.support.lengths import IS_PROOF
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(900)]

OWN_DAGS = """
import os
from airflow.sdk import DAG, Asset, AssetWatcher, task
from logyard.operators.assets import TOPICS_ALIAS
from logyard.operators.consuming import CommitOffsetsOperator, ConsumeFromTopicOperator
from logyard.operators.producing import ProduceToTopicOperator
from logyard.operators.topics import CreateTopicOperator
from logyard.operators.triggers.arrivals import RecordsArrivedEvent

SEEN = "{seen}"

def keep(message):
    with open(SEEN, "a") as file:
        file.write(message.value().decode() + "\\n")
    if os.path.exists(SEEN + ".fail"):
        raise RuntimeError("the work fails")

trigger = RecordsArrivedEvent(topics=["arrivals"], group="arrivals", poll_interval_s=1, remind_after_s=20)
arrived = Asset("kafka://yard:9092/arrivals", watchers=[AssetWatcher(name="arrived", trigger=trigger)])

with DAG("arrivals", schedule=[arrived], max_active_runs=1, catchup=False):
    read = ConsumeFromTopicOperator(
        task_id="read", topics=["arrivals"], group="arrivals", apply_function=keep, commit_cadence="never"
    )
    read >> CommitOffsetsOperator(task_id="commit", group="arrivals", offsets=read.output)

with DAG("writes", schedule=None):
    made = CreateTopicOperator(task_id="create", topic="written", partitions=2, replication_factor=3)
    sent = ProduceToTopicOperator(task_id="produce", topic="written", records=[("k", str(n)) for n in range(9)])

    @task.logyard_consume(topics=["written"], group="writes")
    def count(messages):
        print(len(messages), "came")

    made >> sent >> count()

with DAG("follows", schedule=Asset("kafka://yard:9092/written"), catchup=False):
    @task
    def events(triggering_asset_events=None):
        return [one.extra for events in triggering_asset_events.values() for one in events]

    events()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen") / "values"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, seen: Path) -> Iterator[Yard]:
    text = OWN_DAGS.replace("{seen}", str(seen))
    known, extra = ["writes", "follows"], {"asset_server": "yard:9092"}
    with running_yard(tmp_path_factory.mktemp("yard"), {}, known, text, extra=extra, packaged=False) as made:
        yield made


def _runs(yard: Yard, dag_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yard.api.get(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
    return found


def _committed(yard: Yard) -> int:
    with yard.client() as client:
        return sum(client.group_offsets("arrivals").values())


def _told(yard: Yard, changes: set[str]) -> dict[str, dict[str, Any]]:
    """What the runs of `follows` were told of each change, once they know of all; Airflow names an event by its asset
    and by its alias."""
    found: dict[str, dict[str, Any]] = {}
    for run in _runs(yard, "follows"):
        if run["state"] == "success":
            path = f"/api/v2/dags/follows/dagRuns/{run['dag_run_id']}/taskInstances/events/xcomEntries/return_value"
            found |= {one["change"]: one for one in yard.api.get(path)["value"]}
    return found if found.keys() == changes else {}


def _write(yard: Yard, values: list[str]) -> None:
    yard.cluster.produce("arrivals", [(value.encode(), value.encode()) for value in values])


def _values(seen: Path) -> set[str]:
    return set(seen.read_text().split()) if seen.exists() else set()


def _kill_the_triggerer(yard: Yard) -> None:
    """With its child, in which triggers run."""
    pid = yard.airflow.processes.entries()["triggerer"].pid
    assert pid is not None
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in [pid, *map(int, children)]:
        os.kill(one, signal.SIGKILL)
    # Else it is taken for alive, and not started again.
    eventually(lambda: not yard.airflow.processes.alive("triggerer"), "the triggerer is gone", 30)


def test_what_tasks_write_starts_what_is_scheduled_on_it(yard: Yard) -> None:
    run = yard.api.run_dag("writes", timeout_s=180)
    written = yard.result(run, "produce")
    assert (written["records"], yard.result(run, "count")["records"]) == (9, 9)
    # One run for both events, or one for each.
    told = eventually(lambda: _told(yard, {"created", "records"}), "both events are seen", 120)
    assert (told["created"]["topic"], told["created"]["partitions"]) == ("written", 2)
    assert (told["records"]["records"], told["records"]["offsets"]) == (9, written["offsets"])


def test_records_start_runs_and_a_killed_triggerer_loses_none(yard: Yard, seen: Path) -> None:
    yard.cluster.create("arrivals", partitions=3)
    wanted = [f"a{n}" for n in range(10)]
    _write(yard, wanted)
    yard.api.wait_dag("arrivals", 120)
    # Airflow makes the watchers' triggers when it reads the file again.
    own = yard.dags / "own.py"
    own.write_text(own.read_text() + "\n")
    eventually(lambda: _committed(yard) == 10, "the first records are read and committed", 180)
    assert _values(seen) == set(wanted)

    # Killed with records that nobody has announced, and at random moments of announcing them.
    for step in range(3 if IS_PROOF else 1):
        more = [f"b{step}-{n}" for n in range(20)]
        wanted += more
        _write(yard, more)
        time.sleep(0.4 * step)
        _kill_the_triggerer(yard)
        _write(yard, [f"c{step}"])
        wanted.append(f"c{step}")
        yard.restart()
    eventually(lambda: _committed(yard) == len(wanted), "all are read and committed", 180)
    assert _values(seen) == set(wanted)


@pytest.mark.long
def test_records_of_a_run_that_failed_come_again(yard: Yard, seen: Path) -> None:
    before = _committed(yard)
    fails = seen.with_name(seen.name + ".fail")
    fails.touch()
    _write(yard, ["d1", "d2"])
    eventually(lambda: any(r["state"] == "failed" for r in _runs(yard, "arrivals")), "a run fails", 120)
    assert _committed(yard) == before
    fails.unlink()
    eventually(lambda: _committed(yard) == before + 2, "the reminder brings them again", 180)
    assert {"d1", "d2"} <= _values(seen)
