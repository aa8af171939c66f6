"""Records that were found, saved as a file by a browser: what is hidden on the page is hidden in the file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.broker.records.build import build
from logyard.broker.records.decode import Record
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]


@pytest.fixture
def page() -> Iterator[str]:
    made = MemoryCluster({1: None})
    MemoryClient(made).create_topic(NewTopic("orders", 1, 1))
    made.tick()
    tp = TopicPartition("orders", 0)
    value = b'{"order": %d, "card": "4111-%d", "note": "\xc3\xa5\\n\\u2028"}'
    records = [Record(o, 1_700_000_000_000 + o, b"k%d" % o, value % (o, o), (("trace", b"t"),)) for o in range(9)]
    made.batches[tp], made.end_offsets[tp] = [bytes(build([*records, Record(9, 0, b"gone", None)]))], 10
    with hosted(made) as address:
        yield f"{address}/{PAGE}"


def test_found_records_are_saved_as_they_are_shown(
    browser: Browser, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", '[{"topics": "orders", "fields": ["card"]}]')
    browser.downloads_into(tmp_path)
    browser.goto(f"{page}?view=records&topic=orders&look=1")
    browser.click("//button[.='Save as a file']", 60)
    file = tmp_path / "orders.jsonl"
    eventually(lambda: file.exists() and file.read_bytes().endswith(b"\n"), "the file is there")
    text = file.read_text()
    found = [json.loads(line) for line in text.split("\n")[:-1]]
    assert sorted(one["offset"] for one in found) == list(range(10))
    assert {one["topic"] for one in found} == {"orders"}
    by_offset = {one["offset"]: one for one in found}
    assert by_offset[9]["value"] is None
    assert json.loads(by_offset[3]["value"]["text"]) == {"order": 3, "card": "•••", "note": "å\n\u2028"}
    assert by_offset[3]["headers"][0][0] == "trace"
    # A key has no fields, so it is hidden as a whole.
    assert {one["key"]["kind"] for one in found} == {"hidden"}
    assert "4111" not in text
    assert severe(browser.console()) == []
