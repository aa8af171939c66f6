"""ACLs, users, quotas, settings of brokers and records changed on the page, in a real Airflow over secured brokers.

What a password was used for is looked for its traces in all that Airflow keeps.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.configs.entities import USERS, Entity
from logyard.admin.ports import EARLIEST, LATEST, AccessRefused
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from tests.integration.conftest import CONFIG
from tests.support.airflow_yard import Yard, running_yard
from tests.support.browser import Browser, browser_or_skip, severe
from tests.support.page_steps import PAGE, create, log_in
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(900)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
PASSWORD = "password-of-the-new-user"
DAGS = ("alter_acls", "alter_user", "alter_quotas", "alter_broker_settings", "topic_lifecycle")
REVIEW = "//*[@role='dialog']//button[.='Review']"
SUCCEEDED = "//*[@role='dialog']//*[@role='status']//*[.='success']"
ROW = "//table[@aria-label='%s']//tr[contains(., '%s')]//button[.='%s']"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    browser_or_skip()
    new = {"AIRFLOW_CONN_NEW_PW": json.dumps({"conn_type": "generic", "password": PASSWORD})}
    awaited = [f"logyard_{dag}" for dag in DAGS]
    with running_yard(tmp_path_factory.mktemp("changes"), CONFIG, awaited, secure=True, settings=new) as running:
        yield running


@pytest.fixture(scope="module")
def admin(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser.start(tmp_path_factory.mktemp("browser")) as browser:
        log_in(browser, yard, "admin")
        yield browser


def client(yard: Yard, **login: str) -> "closing[ClusterRequests]":
    """The super user, or who logs in so."""
    settings = {"total_timeout_s": 30, **yard.login, **login}
    return closing(ClusterRequests(ClusterSettings.read(yard.cluster.bootstrap, settings)))


def carried_out(browser: Browser, start: str) -> None:
    browser.click(f"//*[@role='dialog']//button[.='{start}']", 30)
    browser.wait_for(SUCCEEDED, 180)
    browser.click("//*[@role='dialog']//button[.='Close']")


def test_an_acl_is_added_and_removed(yard: Yard, admin: Browser) -> None:
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=acls")
    admin.click("//button[.='Add an ACL']", 60)
    admin.fill("[role=dialog] [name=principal]", "User:carol")
    admin.fill("[role=dialog] [name=name]", "ledger")
    admin.click(REVIEW)
    admin.wait_text("User:carol may do Read on topic ledger, from anywhere.")
    carried_out(admin, "Add it")
    admin.wait_for(ROW % ("ACLs", "User:carol", "Remove"), 60)
    admin.screenshot(SHOTS / "acls-real.png")
    admin.click(ROW % ("ACLs", "User:carol", "Remove"))
    carried_out(admin, "Remove it")
    admin.wait_gone(ROW % ("ACLs", "User:carol", "Remove"), 60)
    assert severe(admin.console()) == []


def test_a_user_logs_in_with_the_password_of_a_connection_that_airflow_keeps_nowhere(
    yard: Yard, admin: Browser
) -> None:
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=users")
    admin.click("//button[.='Add a user']", 60)
    admin.fill("[role=dialog] [name=user]", "newcomer")
    admin.fill("[role=dialog] [name=password_connection]", "new_pw")
    admin.click(REVIEW)
    carried_out(admin, "Add it")
    admin.wait_for(ROW % ("users", "newcomer", "Delete"), 60)
    with client(yard) as brokers:
        assert brokers.scram_users(["newcomer"]) == {"newcomer": {"SCRAM-SHA-512": 8192}}
    with client(yard, username="newcomer", password=PASSWORD, sasl_mechanism="SCRAM-SHA-512") as newcomer:
        assert len(newcomer.snapshot([]).brokers) == 3
    kept = [path for path in yard.airflow.home.directory.rglob("*") if path.is_file()]
    assert [path for path in kept if PASSWORD.encode() in path.read_bytes()] == []
    assert any(path.suffix == ".log" for path in kept)
    admin.click(ROW % ("users", "newcomer", "Delete"))
    admin.fill("//label[contains(., 'Type newcomer')]/following::input[1]", "newcomer")
    carried_out(admin, "Delete it")
    admin.wait_gone(ROW % ("users", "newcomer", "Delete"), 60)
    with (
        pytest.raises(AccessRefused),
        client(yard, username="newcomer", password=PASSWORD, sasl_mechanism="SCRAM-SHA-512") as nobody,
    ):
        nobody.snapshot([])


def test_limits_are_set(yard: Yard, admin: Browser) -> None:
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=quotas")
    admin.click("//button[.='Set limits']", 60)
    admin.fill("[role=dialog] [name=user]", "carol")
    admin.fill("[role=dialog] [name=producer_byte_rate]", "1048576")
    admin.click(REVIEW)
    admin.wait_text("writes 1.0 MiB/s")
    carried_out(admin, "Set them")
    admin.wait_for(ROW % ("quotas", "user carol", "Change"), 60)
    with client(yard) as brokers:
        (quota,) = brokers.quotas(Entity((USERS,), ("carol",)))
    assert quota.values == {"producer_byte_rate": 1048576.0}


def test_a_broker_says_what_it_refuses_and_takes_the_rest(yard: Yard, admin: Browser) -> None:
    error = "return document.querySelector('[role=dialog] [name=configs]').parentElement.innerText"
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=broker&broker=2")
    admin.click("//button[.='Change settings']", 60)
    for typed, said in (("log.retention.ms=soon", "log.retention.ms"), ("broker.id=9", "broker.id")):
        admin.fill("[role=dialog] [name=configs]", typed)
        admin.click(REVIEW)
        eventually(lambda said=said: said in admin.script(error), f"the broker's word about {typed}")
    admin.fill("[role=dialog] [name=configs]", "log.retention.ms=7200000")
    admin.click(REVIEW)
    carried_out(admin, "Change them")
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=brokers")
    admin.click("//button[.='Change settings']", 60)
    admin.fill("[role=dialog] [name=configs]", "log.retention.ms=3600000")
    admin.click(REVIEW)
    admin.wait_text("A broker that has a value of its own keeps it.")
    carried_out(admin, "Change them")
    admin.wait_for(ROW % ("Settings of all brokers", "log.retention.ms", "Change"), 60)
    with client(yard) as brokers:
        alive = sorted(brokers.snapshot([]).brokers)
        found = {broker: brokers.broker_configs(broker)["log.retention.ms"].value for broker in alive}
        assert {name: one.value for name, one in brokers.broker_defaults().items()} == {"log.retention.ms": "3600000"}
    assert found == {broker: "7200000" if broker == 2 else "3600000" for broker in alive}
    assert severe(admin.console()) == []


def test_a_topic_is_emptied_up_to_what_was_shown(yard: Yard, admin: Browser) -> None:
    create(yard, "emptied", partitions=1, replicas=3)
    yard.cluster.produce("emptied", [(b"k", b"v")] * 9)
    admin.goto(f"{yard.airflow.url}/{PAGE}?topic=emptied")
    admin.click("//button[.='Empty' and not(@disabled)]", 60)
    admin.wait_text("The 9 records that topic emptied has now are deleted.")
    yard.cluster.produce("emptied", [(b"k", b"later")])
    admin.fill("//label[contains(., 'Type emptied')]/following::input[1]", "emptied")
    admin.screenshot(SHOTS / "empty-topic.png")
    admin.click("//*[@role='dialog']//button[.='Delete them']")
    admin.wait_for(SUCCEEDED, 180)
    admin.wait_text("Topic emptied: 9 records of 1 partition deleted", 60)
    admin.click("//*[@role='dialog']//button[.='Close']")
    tp = TopicPartition("emptied", 0)
    with client(yard) as brokers:
        assert (brokers.offsets([tp], EARLIEST), brokers.offsets([tp], LATEST)) == ({tp: 9}, {tp: 10})
    assert severe(admin.console()) == []


def test_airflow_keeps_no_run_with_a_secret(yard: Yard) -> None:
    path = "/api/v2/dags/logyard_alter_broker_settings/dagRuns"
    before = yard.api.get(path)["total_entries"]
    conf = {"broker": "1", "settings": {"listener.name.internal.ssl.keystore.password": "hunter2"}}
    answer = yard.api.send("POST", path, allow=(400, 422), json={"logical_date": None, "conf": conf})
    assert (answer.status_code // 100, "hunter2" in answer.text) == (4, False)
    assert yard.api.get(path)["total_entries"] == before
