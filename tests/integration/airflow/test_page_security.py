"""ACLs, users, quotas and settings of brokers on the page, in a browser, over a cluster in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.acls import acls
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.configs.entities import CLIENTS, IPS, USERS, Entity
from logyard.admin.users.users import NewPassword
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_shots import dialog_pictures, pictures
from tests.support.page_steps import PAGE, buttons
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
HOSTILE = "<img src=x onerror=globalThis.taken=1>"
ROWS = (
    "return [...document.querySelectorAll(`table[aria-label='${arguments[0]}'] tbody tr`)].map((row) => row.innerText)"
)
ROW = "//table[@aria-label='%s']//tr[contains(., '%s')]//button[.='%s']"
REVIEW = "//*[@role='dialog']//button[.='Review']"
SENT = "return JSON.parse(document.querySelector('[role=dialog] pre').textContent)"


def guarded() -> MemoryCluster:
    made = MemoryCluster({1: "a", 2: "b", 3: "c"})
    client = MemoryClient(made)
    client.create_topic(NewTopic("orders", 3, 3))
    client.create_acls(
        [
            *acls.parse({"topic": "orders.", "pattern": "prefixed", "principal": "User:billing", "operation": "Read"}),
            *acls.parse({"group": "billing", "principal": "User:billing", "operation": "Read"}),
            *acls.parse(
                {"cluster": True, "principal": "User:CN=ops,O=Yard", "operation": ["Describe", "AlterConfigs"]}
            ),
            *acls.parse({"topic": "payroll", "principal": "User:*", "operation": "Read", "permission": "deny"}),
            *acls.parse(
                {"transactional_id": "*", "principal": f"User:{HOSTILE}", "operation": "Write", "host": "10.0.0.7"}
            ),
        ]
    )
    many = [{"topic": f"team.{n:03d}", "principal": f"User:team-{n:03d}", "operation": "Write"} for n in range(120)]
    client.create_acls([acl for one in many for acl in acls.parse(one)])
    client.alter_users([NewPassword("billing", "SCRAM-SHA-512", "x" * 12, 8192)], {})
    client.alter_users([NewPassword("shop", one, "x" * 12, 4096) for one in ("SCRAM-SHA-256", "SCRAM-SHA-512")], {})
    client.alter_quotas(
        Entity((USERS,), ("billing",)), {"producer_byte_rate": 10_485_760.0, "request_percentage": 50.0}
    )
    client.alter_quotas(Entity((USERS,), ("",)), {"consumer_byte_rate": 1_048_576.0})
    client.alter_quotas(Entity((USERS, CLIENTS), ("shop", "web")), {"controller_mutation_rate": 5.0})
    client.alter_quotas(Entity((IPS,), ("",)), {"connection_creation_rate": 20.0})
    client.alter_broker_configs(None, {"log.retention.ms": "86400000", "num.io.threads": "8"})
    client.alter_broker_configs(1, {"log.cleaner.threads": "2"})
    made.tick()
    return made


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with hosted(guarded(), acts=True) as address:
        yield f"{address}/{PAGE}"


def shown(browser: Browser, name: str) -> list[str]:
    return [" ".join(str(text).split()) for text in browser.script(ROWS, name)]


def filled(browser: Browser, view: str, button: str, values: dict[str, str]) -> None:
    browser.goto(view)
    browser.click(button, 60)
    browser.wait_for(REVIEW)
    for name, text in values.items():
        where = f"[role=dialog] [name={name}]"
        if browser.script("return document.querySelector(arguments[0]).tagName", where) == "SELECT":
            browser.click(f"//*[@role='dialog']//select[@name='{name}']/option[@value='{text}']")
        else:
            browser.fill(where, text)


def test_acls_are_listed_searched_and_removed_one_by_one(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=acls")
    browser.wait_for("table[aria-label=ACLs] tbody tr td", 60)
    assert shown(browser, "ACLs")[0] == "may not User:* Read topic payroll anywhere Remove"  # denials first
    browser.wait_text("126 ACLs")
    browser.fill("input[aria-label='Search ACLs']", "billing")
    browser.wait_text("2 of 126 ACLs")
    eventually(lambda: len(shown(browser, "ACLs")) == 2, "two are found")
    assert "may User:billing Read topics that begin with orders. anywhere Remove" in shown(browser, "ACLs")
    assert "q=billing" in browser.address()
    browser.fill("input[aria-label='Search ACLs']", "onerror")
    eventually(lambda: HOSTILE in " ".join(shown(browser, "ACLs")), "a hostile name is text")
    assert browser.script("return globalThis.taken ?? null") is None
    browser.click(ROW % ("ACLs", "10.0.0.7", "Remove"))
    browser.wait_text("No longer: User:<img")
    assert browser.script(SENT) == {
        "remove": [
            {
                "transactional_id": "*",
                "pattern": "LITERAL",
                "principal": f"User:{HOSTILE}",
                "operation": "WRITE",
                "host": "10.0.0.7",
                "permission": "ALLOW",
            }
        ]
    }
    assert severe(browser.console()) == []


def test_an_acl_and_access_are_given_by_form(browser: Browser, page: str) -> None:
    values = {"principal": "alice", "type": "GROUP", "name": "g", "operation_GROUP": "DESCRIBE", "permission": "DENY"}
    filled(browser, f"{page}?view=acls", "//button[.='Add an ACL']", values)
    browser.click(REVIEW)
    browser.wait_text("a principal such as User:alice")
    browser.fill("[role=dialog] [name=principal]", "User:alice")
    dialog_pictures(browser, "add-acl")
    browser.click(REVIEW)
    browser.wait_text("User:alice may not do Describe on group g, from anywhere.")
    browser.click("//*[@role='dialog']//button[.='Back']")
    filled(browser, f"{page}?view=acls", "//button[.='Grant access']", {"user": "alice", "writes": "orders, pay"})
    dialog_pictures(browser, "grant-access")
    browser.click(REVIEW)
    browser.wait_text("Writes topics orders, pay.")
    assert browser.script(SENT)["writes"] == ["orders", "pay"]


def test_users_get_passwords_of_connections_only(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=users")
    browser.wait_for("table[aria-label=users] tbody tr td", 60)
    rows = shown(browser, "users")
    # Those without a SCRAM password have no actions.
    assert "billing SCRAM-SHA-512 2 writes 10.0 MiB/s, requests 50 % of a thread New passwordDelete" in rows
    assert "CN=ops,O=Yard none 2 none" in rows
    filled(browser, f"{page}?view=users", ROW % ("users", "shop", "New password"), {"password_connection": "shop_pw"})
    assert not browser.find("[role=dialog] input[type=password]")
    dialog_pictures(browser, "new-password")
    browser.click(REVIEW)
    browser.wait_text("no form, run or log has it")
    assert browser.script(SENT) == {
        "user": "shop",
        "password_connection": "shop_pw",
        "mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "change_password": True,
    }
    browser.goto(f"{page}?view=users&q=shop")
    browser.click(ROW % ("users", "shop", "Delete"), 60)
    browser.wait_text("Its ACLs and limits stay.")
    assert browser.script("return document.querySelector('[role=dialog] button[type=submit]').disabled")


def test_limits_are_changed_and_removed(browser: Browser, page: str) -> None:
    browser.goto(f"{page}?view=quotas")
    browser.wait_for("table[aria-label=quotas] tbody tr td", 60)
    assert "all other addresses 20 connections/s ChangeRemove" in shown(browser, "quotas")
    filled(browser, f"{page}?view=quotas", ROW % ("quotas", "user billing", "Change"), {"producer_byte_rate": "0"})
    browser.click(REVIEW)
    browser.wait_text("a number above 0")
    browser.fill("[role=dialog] [name=producer_byte_rate]", " ")  # nothing, typed
    browser.fill("[role=dialog] [name=consumer_byte_rate]", "2048")
    dialog_pictures(browser, "set-limits")
    browser.click(REVIEW)
    browser.wait_text("producer_byte_rate: no limit any more")
    assert browser.script(SENT)["limits"] == {"producer_byte_rate": None, "consumer_byte_rate": 2048}
    browser.goto(f"{page}?view=quotas")
    browser.click(ROW % ("quotas", "client web", "Remove"), 60)
    browser.wait_text("The limits of user shop, client web are removed")


def test_settings_of_brokers_are_judged_by_them_at_the_field(browser: Browser, page: str) -> None:
    error = "return document.querySelector('[role=dialog] [name=configs]').parentElement.innerText"
    filled(browser, f"{page}?view=brokers", ROW % ("Settings of all brokers", "num.io.threads", "Change"), {})
    assert browser.script("return document.querySelector('[name=configs]').value") == (
        "log.retention.ms=86400000\nnum.io.threads=8"
    )
    browser.fill("[role=dialog] [name=configs]", "num.io.threads=16\nbroker.id=4")
    browser.click(REVIEW)
    eventually(lambda: "Cannot update these configs dynamically" in browser.script(error), "the broker's answer")
    dialog_pictures(browser, "broker-settings-refused")
    browser.fill("[role=dialog] [name=configs]", "num.io.threads=16\nssl.key.password=hunter2")
    browser.click(REVIEW)
    browser.wait_text("ssl.key.password is a secret")
    browser.fill("[role=dialog] [name=configs]", "num.io.threads=16")
    browser.click(REVIEW)
    browser.wait_text("num.io.threads: 8 → 16")
    assert browser.script(SENT) == {
        "broker": "default",
        "settings": {"num.io.threads": "16", "log.retention.ms": None},
    }
    assert not any(
        "hunter2" in str(entry) for entry in browser.script("return performance.getEntries().map((e) => e.name)")
    )
    browser.goto(f"{page}?view=broker&broker=1")
    browser.wait_for("table[aria-label='Settings of the broker'] tbody tr td", 60)
    assert shown(browser, "Settings of the broker")[0].startswith("log.cleaner.threads 2")  # its own first
    browser.click("//button[.='Change settings']")
    browser.wait_text("Change settings of broker 1")
    assert severe(browser.console()) == []


@pytest.mark.parametrize("view", ["acls", "users", "quotas", "brokers"])
def test_pictures(browser: Browser, page: str, view: str) -> None:
    pictures(browser, f"{page}?view={view}", view, "table tbody tr td")
    browser.resize(390, 844)
    browser.goto(f"{page}?view={view}")
    browser.wait_for("table tbody tr td", 60)
    right = "return document.querySelector('nav[aria-label=Logyard] [aria-current=page]').getBoundingClientRect().right"
    assert browser.script(right) <= 391  # the bar is scrolled to it
    browser.resize(1440, 900)


# Last: another page of this process takes the connection of the first one with it.


def test_a_viewer_sees_and_changes_nothing(browser: Browser) -> None:
    with hosted(guarded(), acts=True, role="VIEWER") as address:
        for view in ("acls", "users", "quotas", "brokers"):
            browser.goto(f"{address}/{PAGE}?view={view}")
            browser.wait_for("table tbody tr td", 60)
            offered = {"Remove", "Delete", "Change", "New password", "Add a user", "Set limits", "Change settings"}
            assert not offered & buttons(browser), view


def test_without_an_authorizer_one_sentence_says_so(browser: Browser) -> None:
    plain = MemoryCluster({1: None})
    plain.authorizer = False
    with hosted(plain, acts=True) as address:
        browser.goto(f"{address}/{PAGE}?view=acls")
        browser.wait_text("Everybody may do everything: the cluster has no authorizer, and so no ACLs.", 60)
        assert not {"Grant access", "Add an ACL", "Revoke access"} & buttons(browser)  # the brokers would refuse it
        browser.screenshot(SHOTS / "acls-no-authorizer.png")
        for view, said in (("users", "Nobody logs in by SCRAM"), ("quotas", "Nobody is limited.")):
            browser.goto(f"{address}/{PAGE}?view={view}")
            browser.wait_text(said, 60)
