"""A picture of every view of the page, in light, in dark and on a phone: none logs an error, nothing is cut off.

They are in `build/screenshots`, for people to look at; the cluster has something to show in each of them.
"""

import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from logyard.admin.acls import acls
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.configs.entities import USERS, Entity
from logyard.admin.transactions.transactions import Producer
from logyard.admin.users.users import NewPassword
from logyard.broker.model import TopicPartition
from logyard.broker.records.build import build
from logyard.broker.records.decode import Record
from logyard.plugins.logyard_ui.history.sample import GroupPoint, Sample, TopicPoint
from logyard.plugins.logyard_ui.history.slots import slot_of
from logyard.plugins.logyard_ui.history.store import HistoryStore
from tests.support import references
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_shots import pictures
from tests.support.page_steps import PAGE

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

GIB = 1 << 30
LONG = "clickstream.web.pageviews.enriched.by-session.v2"
# Of each view its address, and what is there once it is read.
VIEWS = {
    "overview": ("", "[data-testid=maintenance] table"),
    "clusters": ("view=clusters", "table[aria-label=Clusters] tbody td"),
    "findings": ("view=findings", "[data-testid=finding-unread] table"),
    "topics": ("view=topics", "table[aria-label=Topics] tbody a"),
    "brokers": ("view=brokers", "table[aria-label=Brokers] tbody td"),
    "map": ("view=map", "table[aria-label='Replicas by topic and broker'] tbody td"),
    "groups": ("view=groups", "table[aria-label=Groups] tbody a"),
    "reassignments": (
        "view=reassignments&topics=orders&drain=4&preview=1",
        "table[aria-label='Partitions that change']",
    ),
    "acls": ("view=acls", "table[aria-label=ACLs] tbody td"),
    "users": ("view=users", "table[aria-label=users] tbody td"),
    "quotas": ("view=quotas", "table[aria-label=quotas] tbody td"),
    "topic": ("topic=orders&hours=24", "[data-testid=history] canvas"),
    "records": ("view=records&topic=orders&look=1", "table[aria-label=Records] tbody td"),
    "compare": (f"view=compare&of=topics&name=orders&name={LONG}", "table[aria-label='Settings compared'] tbody td"),
    "broker": ("view=broker&broker=1&hours=24", "[data-testid=history] canvas"),
    "group": ("group=billing&hours=24", "[data-testid=history] canvas"),
}


def test_every_view_has_its_picture() -> None:
    text = (references.ROOT / "plugins" / "logyard_ui" / "static" / "page.js").read_text()
    listed = re.search(r"const VIEWS = \{(.*?)\n\};", text, re.DOTALL)
    assert listed
    assert set(re.findall(r"^  (\w+): \[", listed[1], re.MULTILINE)) == set(VIEWS)


# The tests of these views take pictures of their own: test_page_{clusters,compare,disks,findings,history,security}.py.
ELSEWHERE = {"clusters", "compare", "broker", "findings", "topic", "acls", "users", "quotas", "brokers"}


@pytest.mark.parametrize(
    "view", [pytest.param(view, marks=[pytest.mark.long] if view in ELSEWHERE else []) for view in VIEWS]
)
def test_pictures(browser: Browser, page: str, view: str) -> None:
    query, shown = VIEWS[view]
    pictures(browser, f"{page}?{query}", f"view-{view}", shown)
    assert severe(browser.console()) == []


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = _cluster()
    with hosted(made, acts=True, history=_history(tmp_path_factory.mktemp("views")), airflow=_airflow()) as address:
        yield f"{address}/{PAGE}"


def _cluster() -> MemoryCluster:
    made = MemoryCluster({1: "zone-a", 2: "zone-b", 3: "zone-c", 4: "zone-a", 5: "zone-b"}, ticks_to_move=1_000_000)
    client = MemoryClient(made)
    for name, partitions in (("orders", 6), ("payments", 3), (LONG, 12), ("audit", 1), ("sessions", 8)):
        client.create_topic(NewTopic(name, partitions, 1 if name == "audit" else 3))
    made.configs["orders"] = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    made.configs[LONG] = {"retention.ms": "86400000", "min.insync.replicas": "3"}
    made.tick()
    now = time.time_ns() // 1_000_000
    for number, tp in enumerate(sorted(made.assignments)):
        made.end_offsets[tp], made.record_times[tp] = 40 + 1_000 * number, now
        made.sizes[tp] = (number % 5 + 1) * GIB
    _records(made, now)
    made.group_commits = {
        "billing": {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 900},
        "clickstream-sessionizer-with-a-long-name": {TopicPartition(LONG, 1): 10},
    }
    made.producers[TopicPartition("orders", 1)] = [Producer(4000, 0, -1, 7, now - 3_600_000, 5)]
    made.disks = {(broker, "/data/1"): (200 * GIB, (110 - 30 * broker) * GIB + 20 * GIB) for broker in (1, 2, 3)}
    made.broker_config = {1: {"log.cleaner.threads": "2"}}
    client.alter_broker_configs(None, {"log.retention.ms": "86400000"})
    _security(client)
    client.alter_reassignments({TopicPartition("payments", 0): (2, 3, 4)})
    made.kill(3)
    for _ in range(4):
        made.tick()
    return made


def _records(made: MemoryCluster, now: int) -> None:
    text = '{"order": %d, "customer": {"name": "Ada Lovelace", "city": "Lund"}, "lines": [{"sku": "A-17", "n": 2}]}'
    found = [Record(o, now - 60_000 + o, b"order-%d" % o, (text % o).encode(), (("trace", b"t1"),)) for o in range(40)]
    tp = TopicPartition("orders", 0)
    made.batches[tp], made.end_offsets[tp] = [bytes(build(found))], 40


def _security(client: MemoryClient) -> None:
    rights: list[dict[str, Any]] = [
        {"topic": "orders", "pattern": "prefixed", "principal": "User:billing", "operation": ["Read", "Describe"]},
        {"group": "billing", "principal": "User:billing", "operation": "Read"},
        {"topic": "payroll", "principal": "User:*", "operation": "Read", "permission": "deny"},
        {"cluster": True, "principal": "User:CN=operations,OU=Platform,O=Yard", "operation": "AlterConfigs"},
    ]
    client.create_acls([acl for one in rights for acl in acls.parse(one)])
    client.alter_users([NewPassword("billing", "SCRAM-SHA-512", "x" * 12, 8192)], {})
    client.alter_quotas(Entity((USERS,), ("billing",)), {"producer_byte_rate": 10_485_760.0})


def _history(place: Path) -> HistoryStore:
    store = HistoryStore(sessionmaker(create_engine(f"sqlite:///{place / 'history.db'}")).begin)
    store.prepare()
    now = slot_of(time.time_ns() // 1_000_000)
    end = 0
    for slot in range(now - 24 * 60, now + 1, 5):
        end += round(6_000 * (1.2 + math.sin(slot / 200)))
        lag = max(0, 4_000 + 10 * (slot - now))
        disks = {broker: {"/data/1": (200 * GIB, (60 + (now - slot) // 60) * GIB)} for broker in (1, 2)}
        store.claim("logyard_default", slot)
        store.write(
            "logyard_default",
            slot,
            Sample(
                {"orders": TopicPoint(end, 1_000_000, 3 * GIB, 9 * GIB)},
                {"billing": GroupPoint({"orders": (end - lag, lag)})},
                {1: 9 * GIB},
                9 * GIB,
                disks,
            ),
        )
    return store


def _airflow() -> dict[str, Any]:
    """What Airflow's API says of the runs on the cluster."""
    outcomes: dict[str, tuple[str, list[str], list[list[Any]]]] = {
        "audit_replicas": ("60,000 records in 36 replicas: no finding", ["partition", "finding"], []),
        "compact_segments": (
            "4 partitions looked at, 2 compacted: 334,264 → 16,186 records, 98.6 MiB → 5.1 MiB",
            ["partition", "outcome", "records before", "after"],
            [["orders-0", "compacted", 167_132, 8_093], ["orders-1", "compacted", 167_132, 8_093]],
        ),
        "export_segments": ("16,186 rows exported in 3 files (1.1 MiB)", ["partition", "rows"], [["orders-0", 16_186]]),
        "create_topic": ("Topic orders created", ["partitions"], [[6]]),
    }
    answers: dict[str, Any] = {}
    runs = []
    for hour, (dag, (sentence, columns, rows)) in enumerate(outcomes.items()):
        dag_id = f"logyard_{dag}"
        run = {
            "dag_id": dag_id,
            "dag_run_id": f"manual__{hour}",
            "state": "failed" if dag == "create_topic" else "success",
            "conf": {"topic": "orders"} if dag == "create_topic" else {"topics": ["orders"]},
            "run_type": "manual",
            "run_after": f"2026-11-23T0{9 - hour}:00:00Z",
            "start_date": f"2026-11-23T0{9 - hour}:00:00Z",
            "end_date": f"2026-11-23T0{9 - hour}:01:12Z",
            "triggering_user_name": "operations",
        }
        runs.append(run)
        where = f"/api/v2/dags/{dag_id}/dagRuns/{run['dag_run_id']}"
        task = {"task_id": "job", "map_index": -1, "state": "success", "try_number": 1, "start_date": "2026-11-23"}
        value = {"sentence": sentence, "columns": columns, "rows": rows, "rows_in_all": len(rows)}
        entries = f"{where}/taskInstances/job/xcomEntries"
        answers |= {
            where: run,
            f"{where}/taskInstances": {"task_instances": [task], "total_entries": 1},
            entries: {"xcom_entries": [{"key": "outcome"}], "total_entries": 1},
            f"{entries}/outcome": {"key": "outcome", "value": value},
        }
    answers["/api/v2/dags/~/dagRuns/list"] = {"dag_runs": runs, "total_entries": len(runs)}
    worked = [{"dag_run_id": run["dag_run_id"]} for run in runs]
    answers["/api/v2/dags/~/dagRuns/~/taskInstances/list"] = {"task_instances": worked, "total_entries": len(runs)}
    return answers
