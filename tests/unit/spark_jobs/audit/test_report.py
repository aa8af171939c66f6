"""The report directory and its page."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.audit import report
from logyard.spark_jobs.audit.findings import BAD, OK, WARN, Finding
from logyard.spark_jobs.audit.page import BARS_MAX, ROWS_MAX, page

HOSTILE = "<img src=x onerror=alert(1)>"


def summary(verdict: str = OK, **found: int) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "topics": ["t"],
        "partitions": 1,
        "replicas": 2,
        "segments": 4,
        "batches": 9,
        "records": 1000,
        "bytes": 123456,
        "seconds": 1.5,
        "findings": {BAD: 0, WARN: 0, **found},
    }


def total(replica: int, size: int = 100, partition: int = 0, **fields: Any) -> dict[str, Any]:
    counts = {"segments": 2, "bytes": size, "dirty_bytes": -1}
    return {"topic": "t", "partition": partition, "replica": replica, **counts, **fields}


def finding(level: str = BAD, message: str = "its checksum is wrong", file: str = "/d/t-0/0.log") -> Finding:
    return Finding(level, "crc", "t", 0, 1, file, 77, 5, message)


def svgs(text: str) -> list[ElementTree.Element]:
    """The plots; XML would want quotes, so the few bare attributes get them."""
    found = []
    for piece in text.split("<svg ")[1:]:
        body = "<svg " + piece.split("</svg>")[0] + "</svg>"
        for bare in ("role=img", "text-anchor=end", "class=bar", "class=bad", "class=warn"):
            name, value = bare.split("=")
            body = body.replace(bare, f'{name}="{value}"')
        found.append(ElementTree.fromstring(body))
    return found


def test_a_run_leaves_all_four_files_and_the_next_adds_to_the_history(tmp_path: Path) -> None:
    directory = str(tmp_path / "audit")
    report.write(directory, summary(BAD, **{BAD: 1}), [finding()], [total(1), total(2)], "2026-01-01T00:00:00+00:00")
    report.write(directory, summary(), [], [total(1), total(2)], "2026-01-02T00:00:00+00:00")
    lines = [json.loads(line) for line in (tmp_path / "audit" / "history.jsonl").read_text().splitlines()]
    assert [(line["at"][:10], line["verdict"], line[BAD]) for line in lines] == [
        ("2026-01-01", BAD, 1),
        ("2026-01-02", OK, 0),
    ]
    assert pq.read_table(tmp_path / "audit" / "findings.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "audit" / "replicas.parquet").num_rows == 2
    text = (tmp_path / "audit" / "index.html").read_text()
    assert "2026-01-01" in text
    assert "Audit of 2026-01-02T00:00:00+00:00" in text
    assert sorted(p.name for p in (tmp_path / "audit").iterdir()) == [
        "findings.parquet",
        "history.jsonl",
        "index.html",
        "replicas.parquet",
    ]


def test_a_damaged_history_line_is_left_out(tmp_path: Path) -> None:
    report.write(str(tmp_path), summary(), [], [], "one")
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b'{"at": "torn", "verd\n[]\n{"at": "x"}\n\xff\xfe\0\n')
    report.write(str(tmp_path), summary(), [], [], "two")
    assert [json.loads(line)["at"] for line in (tmp_path / "history.jsonl").read_text().splitlines()] == ["one", "two"]


def test_what_comes_from_a_log_is_text() -> None:
    hostile = finding(message=HOSTILE, file=HOSTILE)
    text = page({**summary(), "topics": [HOSTILE]}, [hostile], [total(1, topic=HOSTILE)], [])
    assert "<img" not in text
    assert "&lt;img" in text


def test_plots_show_size_dirt_skew_and_time() -> None:
    totals = [total(1, 100, dirty_bytes=25), total(2, 300, dirty_bytes=300)]
    history = [{"at": str(n), BAD: n % 2, WARN: 1} for n in range(3)]
    text = page(summary(), [], totals, history)
    for words in ("25%", "100%", "100 bytes, 0.50 of the mean", "300 bytes, 1.50 of the mean", "1 bad, 1 to look at"):
        assert words in text
    sizes, dirty, skew, time = svgs(text)
    widths = [float(r.attrib["width"]) for r in sizes.iter("rect")]
    assert widths[0] == pytest.approx(3 * widths[1], abs=0.2)
    assert [len(list(plot.iter("rect"))) for plot in (dirty, skew, time)] == [2, 2, 3]
    assert [r.attrib["class"] for r in time.iter("rect")] == ["warn", "bad", "warn"]


def test_long_reports_are_cut_and_say_so() -> None:
    text = page(summary(), [finding(WARN)] * (ROWS_MAX + 7), [total(n, n + 1) for n in range(BARS_MAX + 3)], [])
    assert "7 more are in findings.parquet" in text
    assert f"the largest {BARS_MAX} of {BARS_MAX + 3}" in text
    assert text.count("<tr><td") == ROWS_MAX
