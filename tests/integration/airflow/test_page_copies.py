"""A record sent and copied on the page, by real DAG runs over real brokers."""

from collections.abc import Iterator

import pytest

from tests.integration.conftest import CONFIG
from tests.support.airflow_yard import Yard, running_yard
from tests.support.browser import Browser, browser_or_skip, severe
from tests.support.page_shots import SHOTS, dialog_pictures
from tests.support.page_steps import PAGE, create, log_in, outcome_in_dialog

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(600)]

HOSTILE = "<img src=x onerror=globalThis.taken=1>"
RUN_SUCCEEDED = "//*[@role='dialog']//*[@role='status']//*[.='success']"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    browser_or_skip()
    awaited = ["logyard_send_record", "logyard_copy_records"]
    with running_yard(tmp_path_factory.mktemp("copies"), CONFIG, awaited) as running:
        yield running


@pytest.fixture(scope="module")
def admin(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser.start(tmp_path_factory.mktemp("browser")) as browser:
        log_in(browser, yard, "admin")
        yield browser


def test_a_record_is_sent_and_copied(yard: Yard, admin: Browser) -> None:
    for name in ("sent", "copied"):
        create(yard, name, partitions=2, replicas=3)
    admin.goto(f"{yard.airflow.url}/{PAGE}?topic=sent")
    admin.click("//button[.='Send a record']", 60)
    admin.fill("input[name=key]", "greeting")
    admin.fill("textarea[name=value]", f'{{"text": "{HOSTILE}"}}')
    admin.fill("textarea[name=headers]", "trace=17")
    admin.fill("input[name=partition]", "2")
    admin.click("//*[@role='dialog']//button[.='Review']")
    admin.wait_text("The last partition is 1.")
    admin.fill("input[name=partition]", "1")
    dialog_pictures(admin, "send-record")
    admin.click("//*[@role='dialog']//button[.='Review']")
    admin.wait_text("a record cannot be taken back")
    admin.click("//button[.='Send it']")
    admin.wait_for(RUN_SUCCEEDED, 120)
    assert "1 record (58 B) written to sent" in outcome_in_dialog(admin).replace("\n", " ")
    admin.click("//*[@role='dialog']//button[.='Close']")
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=records&topic=sent&text=onerror&look=1")
    admin.wait_text("1 record of 1", 60)
    admin.click("//button[.='Copy']")
    admin.fill("input[name=to_topic]", "sent")
    admin.click("//*[@role='dialog']//button[.='Review']")
    admin.wait_text("this one would be copied into itself")
    admin.fill("input[name=to_topic]", "copied")
    dialog_pictures(admin, "copy-records")
    admin.click("//*[@role='dialog']//button[.='Review']")
    admin.wait_text("Only those that contain “onerror”.")
    admin.screenshot(SHOTS / "copy-records-review.png")
    admin.click("//button[.='Copy them']")
    admin.wait_for(RUN_SUCCEEDED, 120)
    assert "1 record (58 B) copied from sent to copied; 1 looked at" in outcome_in_dialog(admin)
    admin.screenshot(SHOTS / "copy-records-done.png")
    admin.click("//*[@role='dialog']//button[.='Close']")
    admin.goto(f"{yard.airflow.url}/{PAGE}?view=records&topic=copied&look=1")
    admin.wait_text("greeting", 60)
    assert admin.script("return globalThis.taken ?? null") is None
    assert severe(admin.console()) == []
