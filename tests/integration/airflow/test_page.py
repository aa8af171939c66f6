"""The page in a real Airflow over three real brokers, worked with a real browser as its users do."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.connector import RealPause
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.broker.model import TopicPartition as AdminPartition
from logyard.local.airflow.dag_files import DAGS
from tests.integration.conftest import CONFIG
from tests.support.airflow_yard import Yard, running_yard
from tests.support.browser import Browser, browser_or_skip, severe
from tests.support.memory_records import MemoryRecords
from tests.support.page_steps import (
    OFFERED,
    PAGE,
    SLOW_ANSWERS,
    buttons,
    create,
    latest_run,
    log_in,
    open_changes,
    outcome_in_dialog,
    plan_move,
    settled,
    tile,
)
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(600)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
# Where Kafka lets people write what they like: groups, clients, racks. Topics' names are the nearest that is legal.
HOSTILE = "<img src=x onerror=globalThis.taken=1>"
COUSIN = "img_src-x_onerror-globalThis.taken-1"
RUN_SUCCEEDED = "//*[@role='dialog']//*[@role='status']//*[.='success']"
VIEWS = ("", "?view=topics", "?view=brokers", "?view=map", "?view=groups", "?view=reassignments")


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    browser_or_skip()
    awaited = [f"logyard_{dag}" for dag in DAGS if dag != "controller_watch"]
    config = {**CONFIG, "broker.rack": HOSTILE}
    with running_yard(tmp_path_factory.mktemp("page"), config, awaited) as running:
        yield running


@pytest.fixture(scope="module")
def admin(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser in which the administrator is logged in."""
    with Browser.start(tmp_path_factory.mktemp("browser")) as browser:
        log_in(browser, yard, "admin")
        yield browser


def test_a_topic_is_created_by_form_and_appears(yard: Yard, admin: Browser) -> None:
    admin.click("//button[@aria-label='Browse' or normalize-space()='Browse']")
    admin.click("//*[@role='menuitem' or self::a][normalize-space()='Logyard']")
    admin.wait_for("nav[aria-label=Logyard]")
    eventually(lambda: "Healthy" in admin.text(), "the cluster is healthy")
    assert "Broker" in admin.text("main, body")
    admin.click("//button[.='Create topic']")
    admin.fill("input[name=topic]", "no such name")
    admin.click("//button[.='Review']")
    admin.wait_text("1 to 249 letters")
    admin.fill("input[name=topic]", COUSIN)
    admin.fill("input[name=partitions]", "4")
    admin.fill("input[name=replication_factor]", "3")
    admin.fill("textarea[name=configs]", "cleanup.policy=compact\nretention.ms=86400000")
    admin.screenshot(SHOTS / "create-topic.png")
    admin.click("//button[.='Review']")
    admin.wait_text("retention.ms = 86400000")
    admin.click("//button[.='Create it']")
    admin.wait_for(RUN_SUCCEEDED, 120)
    admin.screenshot(SHOTS / "create-topic-done.png")
    admin.click("//*[@role='dialog']//button[.='Close']")
    admin.click("//nav[@aria-label='Logyard']//a[.='Topics']")
    admin.fill("input[aria-label='Search topics']", "onerror")
    admin.wait_for(f"//a[.='{COUSIN}']")
    eventually(lambda: "q=onerror" in admin.address(), "the search is in the address")
    admin.click(f"//a[.='{COUSIN}']")
    admin.wait_text("compact")
    assert f"topic={COUSIN}" in admin.address()
    table = "table[aria-label=Partitions] tbody tr"
    partitions = admin.script(f"return [...document.querySelectorAll('{table}')].map((row) => row.innerText)")
    assert len(partitions) == 4
    assert {"cleanup.policy", "retention.ms"} <= set(admin.text().split())
    admin.back()
    admin.wait_for("input[aria-label='Search topics']")
    assert admin.script("return document.querySelector(\"input[aria-label='Search topics']\").value") == "onerror"
    with yard.client() as client:
        assert client.topic_configs(COUSIN)["retention.ms"].value == "86400000"
    assert severe(admin.console()) == []


def test_why_a_run_failed_is_said(yard: Yard, admin: Browser) -> None:
    admin.goto(f"{yard.airflow.url}/{PAGE}")
    admin.click("//button[.='Create topic']")
    admin.fill("input[name=topic]", "twice")
    admin.click("//button[.='Review']")
    admin.wait_for("//button[.='Create it']")
    create(yard, "twice", partitions=1, replicas=1)  # after the brokers have judged the form
    admin.click("//button[.='Create it']")
    admin.wait_for("//*[@role='dialog']//*[@role='status']//*[.='failed']", 120)
    admin.wait_text("exists", 30)
    admin.wait_for("//*[@role='dialog']//a[.='Log of create']")
    admin.screenshot(SHOTS / "failed.png")
    open_changes(admin, yard, latest_run(yard, "logyard_create_topic"))
    admin.wait_for("//*[@data-testid='failure']//*[starts-with(., 'The task create failed: ')]", 60)
    assert severe(admin.console()) == []


def test_settings_are_changed_after_a_look_at_the_difference(yard: Yard, admin: Browser) -> None:
    create(yard, "settled", partitions=1, replicas=1, **{"retention.ms": "1000000", "cleanup.policy": "compact"})
    admin.goto(f"{yard.airflow.url}/{PAGE}?topic=settled")
    admin.click("//button[.='Settings' and not(@disabled)]")
    admin.fill("textarea[name=configs]", "retention.ms=2000000")
    admin.click("//button[.='Review']")
    admin.wait_text("retention.ms: 1000000 → 2000000")
    admin.wait_text("cleanup.policy: compact → default")
    admin.click("//button[.='Change them']")
    admin.wait_for(RUN_SUCCEEDED, 120)
    admin.click("//*[@role='dialog']//button[.='Close']")
    with yard.client() as client:
        configs = client.topic_configs("settled")
    assert (configs["retention.ms"].value, configs["cleanup.policy"].is_override) == ("2000000", False)
    admin.click("//button[.='Delete']")
    admin.click("//button[.='Review']")
    admin.wait_text("This cannot be undone")
    admin.fill("//label[contains(., 'Type settled')]/following::input[1]", "settle")
    assert admin.script("return document.querySelector('[role=dialog] button[type=submit]').disabled")
    admin.fill("//label[contains(., 'Type settled')]/following::input[1]", "settled")
    admin.click("//button[.='Delete it']")
    admin.wait_for(RUN_SUCCEEDED, 120)
    admin.click("//*[@role='dialog']//button[.='Close']")
    with yard.client() as client:
        assert client.snapshot(["settled"]).missing == ("settled",)
    # The deleted topic's view polled it and got 404, which the browser logs; leave it, so that it polls no more.
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=topics")
    settled(admin)
    assert [entry for entry in severe(admin.console()) if "404" not in entry] == []


def test_a_reassignment_is_planned_run_and_cancelled(yard: Yard, admin: Browser) -> None:
    with yard.client() as client:
        client.create_topic(NewTopic("moved", assignment={0: (0, 1), 1: (1, 0)}))
        eventually(lambda: client.snapshot(["moved"]).ready("moved"), "moved is led")
    value = os.urandom(100_000)
    yard.cluster.produce("moved", [(b"%d" % n, value) for n in range(60)])
    plan_move(admin, yard, drain=0, throttle=400_000)
    admin.wait_for("table[aria-label='Partitions that change']", 60)
    admin.wait_text("+2")
    admin.screenshot(SHOTS / "plan.png")
    admin.click("//button[.='Run this plan']")
    admin.wait_text("Exactly the plan that was shown")
    admin.click("//button[.='Move them']")
    admin.wait_for("//*[@role='dialog']//*[.='Close']")
    admin.click("//*[@role='dialog']//button[.='Close']")
    admin.wait_for("table[aria-label='Partitions that move']", 120)
    admin.wait_text("Run by logyard_reassign_replicas")
    admin.screenshot(SHOTS / "moving.png")
    run = latest_run(yard, "logyard_reassign_replicas")
    yard.api.wait_run(run, 240)
    admin.wait_text("Nothing moves.", 60)
    with yard.client() as client:
        assert all(0 not in view.replicas for _, view in client.snapshot(["moved"]).partitions())

    plan_move(admin, yard, drain=1, throttle=20_000)
    admin.click("//button[.='Run this plan']", 60)
    admin.click("//button[.='Move them']")
    admin.click("//*[@role='dialog']//button[.='Close']")
    admin.wait_for("table[aria-label='Partitions that move']", 120)
    admin.click("//button[.='Cancel']")
    admin.click("//button[.='Cancel the moves']")
    with yard.client() as client:
        eventually(lambda: not client.list_reassignments(), "the moves are cancelled", 60)
        assert all(1 in view.replicas for _, view in client.snapshot(["moved"]).partitions())
    admin.wait_text("Nothing moves.", 60)
    assert severe(admin.console()) == []


def test_every_action_starts_its_dag_with_what_was_filled_in(yard: Yard, admin: Browser) -> None:
    """The DAGs are paused meanwhile: Airflow takes each run and checks what was sent, and none moves or compacts."""
    create(yard, "acted", partitions=2, replicas=1)
    dags = sorted({f"logyard_{dag}" for *_, dag, _ in OFFERED})
    for dag_id in dags:
        yard.api.send("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": True})
    for address, button, filled, start, dag, conf in OFFERED:
        admin.goto(f"{yard.airflow.url}/{PAGE}{address}")
        admin.click(f"//button[.='{button}']", 60)
        for field, text in filled.items():
            admin.fill(f"input[name={field}]", text)
        admin.click("//*[@role='dialog']//button[.='Review']")
        admin.screenshot(SHOTS / f"action-{dag}.png")
        if dag == "decommission_broker":
            admin.fill("//label[contains(., 'Type 2')]/following::input[1]", "2")
        admin.click(f"//*[@role='dialog']//button[.='{start}']")
        admin.wait_for(f"//*[@role='dialog']//a[.='Run of logyard_{dag}']", 60)
        admin.wait_for("//*[@role='dialog']//*[@role='status']//*[.='queued']", 60)
        admin.click("//*[@role='dialog']//button[.='Close']")
        where = f"/api/v2/dags/logyard_{dag}/dagRuns"
        (run,) = (found for found in yard.api.get(where)["dag_runs"] if found["state"] == "queued")
        topic = {"topic": "acted"} if dag in ("topic_lifecycle", "send_record", "copy_records") else {}
        assert {name: run["conf"][name] for name in conf | topic} == conf | topic, dag
        assert run["triggering_user_name"] == "admin"
        yard.api.send("DELETE", f"{where}/{run['dag_run_id']}")
    for dag_id in dags:
        yard.api.send("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})
    assert severe(admin.console()) == []


def test_offsets_are_reset_after_an_approval(yard: Yard, admin: Browser) -> None:
    create(yard, "rewound", partitions=1, replicas=3)
    yard.cluster.produce("rewound", [(b"k", b"v")] * 9)
    group, tp = "rewinders", AdminPartition("rewound", 0)
    with yard.client() as client:
        client.alter_group_offsets(group, {tp: 4})
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=group&group={group}")
    admin.click("//button[.='Reset offsets']", 60)
    admin.click("//select[@name='to']/option[.='a number of records forward or back']")
    admin.click("//*[@role='dialog']//button[.='Review']")
    admin.wait_text("This is required.")
    admin.fill("input[name=shift]", "-3")
    admin.screenshot(SHOTS / "reset-offsets.png")
    admin.click("//*[@role='dialog']//button[.='Review']")
    admin.wait_text("from 3 records before its current position")
    admin.screenshot(SHOTS / "reset-offsets-review.png")
    admin.click("//button[.='Plan them']")
    admin.click("//*[@role='dialog']//a[starts-with(., 'It waits for an approval')]", 120)
    admin.wait_text("1 committed offsets change", 60)
    admin.screenshot(SHOTS / "reset-offsets-approval.png")
    run = latest_run(yard, "logyard_reset_offsets")
    with yard.client() as client:
        assert client.group_offsets(group) == {tp: 4}
    admin.click("//button[normalize-space()='Approve']")
    yard.api.wait_run(run, 120)
    with yard.client() as client:
        assert client.group_offsets(group) == {tp: 1}
    assert severe(admin.console()) == []


def test_preferred_leaders_are_elected(yard: Yard, admin: Browser) -> None:
    with yard.client() as client:
        client.create_topic(NewTopic("astray", assignment={0: (0, 1), 1: (1, 2)}))
        eventually(lambda: client.snapshot(["astray"]).ready("astray"), "astray is led")
        client.alter_reassignments({AdminPartition("astray", 0): (1, 0)})  # the same replicas, another one preferred
        eventually(lambda: client.snapshot(["astray"]).not_preferred(["astray"]), "another one leads")
        admin.goto(f"{yard.airflow.url}/{PAGE}?topic=astray")
        admin.click("//button[.='Elect preferred leaders']", 60)
        admin.wait_text("Led by another replica now: 1 partition.")
        admin.screenshot(SHOTS / "elect-leaders.png")
        admin.click("//button[.='Elect them']")
        admin.wait_for(RUN_SUCCEEDED, 120)
        assert client.snapshot(["astray"]).not_preferred(["astray"]) == []
        sentence = yard.api.xcom(latest_run(yard, "logyard_elect_leaders"), "elect", "outcome")["sentence"]
        assert {sentence, "astray-0"} <= set(outcome_in_dialog(admin).splitlines())
    admin.click("//*[@role='dialog']//button[.='Close']")
    admin.wait_gone("//button[.='Elect preferred leaders']", 60)
    assert severe(admin.console()) == []


def test_what_another_tool_moves_is_cancelled(yard: Yard, admin: Browser) -> None:
    tp = AdminPartition("foreign", 0)
    runs = "/api/v2/dags/logyard_reassign_replicas/dagRuns"
    eventually(lambda: not yard.api.get(runs, state=["queued", "running"])["dag_runs"], "earlier runs have ended", 60)
    with yard.client() as client:
        client.create_topic(NewTopic("foreign", assignment={0: (0, 1)}))
        eventually(lambda: client.snapshot(["foreign"]).ready("foreign"), "foreign is led")
        value = os.urandom(100_000)
        yard.cluster.produce("foreign", [(b"k", value) for _ in range(60)])
        ThrottleBook(client, MemoryRecords(), RealPause()).hold("somebody", [Move(tp, (0, 1), (1, 2))], 20_000)
        client.alter_reassignments({tp: (1, 2)})
        admin.goto(f"{yard.airflow.url}/{PAGE}?view=reassignments")
        admin.wait_text("No DAG run owns these moves", 60)
        admin.screenshot(SHOTS / "foreign-moves.png")
        admin.click("//button[.='Cancel these moves']")
        admin.click("//*[@role='dialog']//button[.='Review']")
        admin.wait_text("The moves of 1 partition are cancelled")
        admin.screenshot(SHOTS / "cancel-foreign.png")
        admin.click("//button[.='Cancel the moves']")
        admin.wait_for(RUN_SUCCEEDED, 120)
        assert client.list_reassignments() == {}
        assert set(client.snapshot(["foreign"]).topics["foreign"].partitions[0].replicas) == {0, 1}
        kept = [*client.topic_configs("foreign").items(), *client.broker_configs(2).items()]
        assert [name for name, config in kept if "throttled" in name and config.is_override and config.value] == []
    admin.click("//*[@role='dialog']//button[.='Close']")
    admin.wait_text("Nothing moves.", 60)
    assert severe(admin.console()) == []


def test_what_a_run_touched_is_told_on_its_tab(yard: Yard, admin: Browser) -> None:
    open_changes(admin, yard, yard.api.run_dag("logyard_create_topic", {"topic": "touched", "partitions": 1}, 120))
    admin.wait_for("//a[.='topic touched']", 60)
    admin.wait_text('"partitions": 1')
    admin.screenshot(SHOTS / "run.png")
    admin.click("(//a[.='topic touched'])[1]")
    admin.wait_for("table[aria-label=Partitions]")
    assert "topic=touched" in admin.address()
    assert severe(admin.console()) == []


def test_hostile_names_and_values_are_text(yard: Yard, admin: Browser) -> None:
    create(yard, "read", partitions=1, replicas=3)
    yard.cluster.produce("read", [(b"k", b"v")] * 9)
    conf = {"bootstrap.servers": yard.cluster.bootstrap, "group.id": HOSTILE, "client.id": HOSTILE}
    consumer = Consumer({**conf, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe(["read"])
        eventually(lambda: consumer.consume(1, 1.0), "a record is read")
        consumer.commit(offsets=[TopicPartition("read", 0, 4)], asynchronous=False)
        admin.goto(f"{yard.airflow.url}/{PAGE}?view=groups")
        admin.wait_for(f"//a[.='{HOSTILE}']", 60)
        admin.click(f"//a[.='{HOSTILE}']")
        admin.wait_for("table[aria-label='Members of the group']", 60)
        shown = admin.text()
        assert shown.count(HOSTILE) >= 3  # the heading, the member, who reads the partition
        assert "5" in admin.text("table[aria-label='Offsets of the group']")  # its lag
        admin.screenshot(SHOTS / "hostile-group.png")
    finally:
        consumer.close()
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=brokers")
    admin.wait_for("table[aria-label=Racks]", 60)
    assert HOSTILE in admin.text("table[aria-label=Racks]")
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=broker&broker=0")
    admin.wait_text("broker.rack", 60)
    assert HOSTILE in admin.text()
    admin.goto(f"{yard.airflow.url}/{PAGE}?topic={'%3Cscript%3EglobalThis.taken%3D1%3C%2Fscript%3E'}")
    admin.wait_text("<script>globalThis.taken=1</script>")
    assert admin.script("return globalThis.taken ?? null") is None
    assert admin.script("return document.querySelectorAll('img[src=x]').length") == 0
    admin.goto(f"{yard.airflow.url}/{PAGE}")  # the topic's page would ask again, while another test looks
    # A topic that cannot be has no page: the browser writes the answer down.
    assert [entry for entry in severe(admin.console()) if "404" not in entry and "422" not in entry] == []


def test_a_viewer_sees_everything_and_is_offered_nothing(yard: Yard, tmp_path: Path) -> None:
    with Browser.start(tmp_path) as browser:
        log_in(browser, yard, "viewer")
        for view in VIEWS:
            browser.goto(f"{yard.airflow.url}/{PAGE}{view}")
            browser.wait_for("nav[aria-label=Logyard]")
            settled(browser)
            browser.script("return new Promise((done) => setTimeout(done, 700))")
            assert buttons(browser) & {"Create topic", "Recover controller", "Plan an even distribution"} == set(), view
            assert "You have no permission" not in browser.text()
        browser.goto(f"{yard.airflow.url}/{PAGE}?topic={COUSIN}")
        browser.wait_for("table[aria-label=Partitions]", 60)
        assert buttons(browser) & {"Settings", "Add partitions", "Move replicas", "Delete"} == set()
        browser.screenshot(SHOTS / "viewer-topic.png")
        create(yard, "looked", partitions=2, replicas=1)
        browser.goto(f"{yard.airflow.url}/{PAGE}?view=reassignments&topics=looked&drain=0,1&preview=1")
        browser.wait_for("//*[@aria-label='Difference'] | //*[contains(., 'Nothing would move')]", 60)
        assert "Run this plan" not in buttons(browser)
        assert severe(browser.console()) == []
        # Whoever goes around the page meets Airflow's own permissions.
        refusal = browser.script(
            "return fetch(new URL('api/v2/dags/logyard_create_topic/dagRuns', document.baseURI), {method: 'POST', "
            "headers: {'Content-Type': 'application/json'}, body: arguments[0]}).then((answer) => answer.status)",
            json.dumps({"logical_date": None, "conf": {"topic": "forbidden"}}),
        )
        assert refusal == 403
    with yard.client() as client:
        assert client.snapshot(["forbidden"]).missing == ("forbidden",)


def test_light_and_dark_and_the_dashboard(yard: Yard, admin: Browser) -> None:
    """Every view in both, kept as pictures; none of them logs an error."""
    for theme in ("light", "dark"):
        admin.script("localStorage.setItem('theme', arguments[0])", theme)
        admin.goto(yard.airflow.url)
        admin.wait_for("section[aria-label='Logyard clusters'] a", 60)
        admin.wait_text("logyard_default")
        assert admin.script("return document.documentElement.className").strip() == theme
        admin.screenshot(SHOTS / f"dashboard-{theme}.png")
        for view in (*VIEWS, f"?topic={COUSIN}", "?view=broker&broker=1"):
            admin.goto(f"{yard.airflow.url}/{PAGE}{view}")
            admin.wait_for("nav[aria-label=Logyard]")
            settled(admin)
            name = view.replace("?", "").replace("view=", "").replace(f"topic={COUSIN}", "topic").split("&")[0]
            admin.screenshot(SHOTS / f"{name or 'overview'}-{theme}.png")
    assert severe(admin.console()) == []


def test_the_tile_keeps_its_place_while_it_loads(yard: Yard, tmp_path: Path) -> None:
    with Browser.start(tmp_path) as browser:
        log_in(browser, yard, "viewer")
        browser.before_every_page(SLOW_ANSWERS)
        browser.goto(yard.airflow.url)
        early = eventually(lambda: tile(browser), "the tile is there before its answers are")
        assert "Controller" not in early["text"]
        eventually(lambda: "Controller" in tile(browser)["text"], "it is filled")
        assert abs(tile(browser)["height"] - early["height"]) < 30
