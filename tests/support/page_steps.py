"""What users of the page do again and again, and what they are offered."""

from typing import Any

from logyard.admin.cluster.snapshot import NewTopic
from logyard.local.airflow.api import Run
from tests.support.airflow_yard import Yard
from tests.support.browser import Browser
from tests.support.real_cluster import eventually

PAGE = "plugin/logyard"
# When the first rows are drawn, for whoever asks later.
FIRST_ROWS = """
new MutationObserver((changes, self) => {
  if (!document.querySelector('[data-testid=logyard] tbody a')) return;
  self.disconnect();
  requestAnimationFrame(() => setTimeout(() => { globalThis.drawn = performance.now(); }, 0));
}).observe(document, { childList: true, subtree: true });
"""
# Milliseconds from the page's request, and from that of the view's first file, until the first rows are drawn.
OPENED = """
const view = performance.getEntriesByType('resource').find((entry) => entry.name.endsWith('/static/page.js'));
const wait = (done) => (globalThis.drawn ? done() : setTimeout(() => wait(done), 20));
return new Promise(wait).then(() => (
  { page: Math.round(globalThis.drawn), view: Math.round(globalThis.drawn - view.startTime) }));
"""
# What is offered where, beside what tests carry to its end: (address, button, what is filled in, the button that
# starts it, DAG, what is sent).
OFFERED: list[tuple[str, str, dict[str, str], str, str, dict[str, Any]]] = [
    ("?topic=acted", "Add partitions", {"expand_to": "5"}, "Add them", "topic_lifecycle", {"expand_to": 5}),
    (
        "?topic=acted",
        "Create one like it",
        {"topic": "acted-too"},
        "Create it",
        "create_topic",
        {"topic": "acted-too", "partitions": 2, "replication_factor": 1},
    ),
    ("?topic=acted", "Compact", {}, "Compact", "compact_segments", {"topics": ["acted"]}),
    ("?topic=acted", "Audit", {}, "Audit", "audit_replicas", {"topics": ["acted"]}),
    (
        "?topic=acted",
        "Export",
        {"destination": "  /lake/acted "},
        "Export",
        "export_segments",
        {"topics": ["acted"], "destination": "/lake/acted"},
    ),
    (
        "?topic=acted",
        "Send a record",
        {"key": "k", "partition": "1"},
        "Send it",
        "send_record",
        {"key": "k", "value": "", "partition": 1, "tombstone": False, "headers": {}},
    ),
    (
        "?view=records&topic=acted&start=offset&at=3&partition=0&text=x",
        "Copy",
        {"to_topic": "another"},
        "Copy them",
        "copy_records",
        {"to_topic": "another", "start": "3", "end": "latest", "partitions": [0], "text": "x", "transactional": True},
    ),
    ("?view=topics", "Report", {"topics": "acted"}, "Report", "retention_report", {"topics": ["acted"]}),
    (
        "?view=topics",
        "From a file",
        {"file": "sub/topics.yml"},
        "Plan it",
        "topics_as_code",
        {"file": "sub/topics.yml", "delete_unlisted": False, "approve": True},
    ),
    (
        "?view=broker&broker=2",
        "Decommission",
        {"replication_factor": "2", "throttle": "1000"},
        "Empty them",
        "decommission_broker",
        {"brokers": [2], "replication_factor": 2, "throttle": 1000, "stop_brokers": False, "approve": False},
    ),
    ("", "Recover controller", {}, "Only report", "recover_controller", {"dry_run": True, "restart_brokers": True}),
]


def log_in(browser: Browser, yard: Yard, user: str) -> None:
    browser.goto(f"{yard.airflow.url}/")
    browser.fill("input[name=username]", user)
    browser.fill("input[name=password]", yard.airflow.home.password(user))
    browser.click("//button[normalize-space()='Sign in']")
    browser.wait_for("[data-testid=main-content]", 60)
    browser.console()  # what happened before the login is not ours


def settled(browser: Browser) -> None:
    """Wait until nothing is being loaded any more."""
    browser.wait_gone("[data-testid=logyard] [role=status][aria-label^=Loading]", 60)


def buttons(browser: Browser) -> set[str]:
    found = browser.script(
        "return [...document.querySelectorAll('[data-testid=logyard] :is(button, a)')].map((b) => b.innerText)"
    )
    return {str(text).strip() for text in found}


def plan_move(browser: Browser, yard: Yard, drain: int, throttle: int) -> None:
    """Fill in the form of a reassignment that empties one broker, and ask for the difference."""
    browser.goto(f"{yard.airflow.url}/{PAGE}?view=reassignments&topics=moved")
    browser.wait_text("Nothing moves.", 60)
    browser.click(f"//fieldset//label[normalize-space()='{drain}']", 60)
    browser.fill("//label[starts-with(., 'Throttle')]/following::input[1]", str(throttle))
    browser.click("//button[.='Show the difference']")


def latest_run(yard: Yard, dag_id: str) -> Run:
    found: list[dict[str, Any]] = yard.api.get(f"/api/v2/dags/{dag_id}/dagRuns", order_by="-start_date")["dag_runs"]
    return Run(dag_id, found[0]["dag_run_id"], found[0]["state"])


def open_changes(browser: Browser, yard: Yard, run: Run) -> None:
    """The page's tab on a run."""
    browser.goto(f"{yard.airflow.url}/dags/{run.dag_id}/runs/{run.run_id}")
    browser.click("//a[@title='Cluster changes' or normalize-space()='Cluster changes']", 60)


def create(yard: Yard, topic: str, partitions: int, replicas: int, **configs: str) -> None:
    with yard.client() as client:
        client.create_topic(NewTopic(topic, partitions, replicas, configs=configs))
        eventually(lambda: client.snapshot([topic]).ready(topic), f"{topic} is led")


# Answers of the page's own routes come late.
SLOW_ANSWERS = """
const ask = globalThis.fetch;
globalThis.fetch = async (...all) => {
  if (String(all[0]?.url ?? all[0]).includes('/logyard/api/')) await new Promise((done) => setTimeout(done, 1500));
  return ask(...all);
};
"""


def tile(browser: Browser) -> Any:
    """Height and text of the dashboard's tile; None while there is none."""
    return browser.script(
        "const tile = document.querySelector(\"section[aria-label='Logyard clusters']\");"
        "return tile && { height: tile.getBoundingClientRect().height, text: tile.innerText };"
    )


def outcome_in_dialog(browser: Browser) -> str:
    """What the run did, in the dialog: the sentence of its operator, and its table."""
    browser.wait_for("//*[@role='dialog']//*[@data-testid='outcome']", 30)
    return browser.text("[role=dialog] [data-testid=outcome]")
