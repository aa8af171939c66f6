"""An audit's report directory: `findings.parquet`, `replicas.parquet`, `history.jsonl` (a line per run) and
`index.html` (audit/page.py), which needs no other file."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logyard.spark_jobs.atomic_file import draft_of, write_atomically
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.page import page

FINDINGS_SCHEMA = pa.schema(
    [
        ("level", pa.string()),
        ("check", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("replica", pa.int32()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("offset", pa.int64()),
        ("message", pa.string()),
    ]
)
HISTORY = "history.jsonl"
HISTORY_LINES_MAX = 1000


def check(directory: str) -> None:
    """Make the directory and write a file there: who cannot is told so before the audit. Raises OSError."""
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"-")


def write(
    directory: str,
    summary: Mapping[str, Any],
    findings: Sequence[Finding],
    totals: Sequence[Mapping[str, Any]],
    at: str,
) -> None:
    """Write all four files; `at` is the run's time as ISO 8601 text. Raises OSError."""
    os.makedirs(directory, exist_ok=True)
    _write_table(directory, "findings.parquet", [f.to_json() for f in findings], FINDINGS_SCHEMA)
    if totals:
        _write_table(directory, "replicas.parquet", list(totals), None)
    history = [*_history(directory), {"at": at, **_line(summary)}][-HISTORY_LINES_MAX:]
    write_atomically(os.path.join(directory, HISTORY), "".join(json.dumps(line) + "\n" for line in history))
    write_atomically(os.path.join(directory, "index.html"), page(summary, findings, totals, history))


def _write_table(directory: str, name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None) -> None:
    with draft_of(os.path.join(directory, name)) as draft:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), draft)


def _line(summary: Mapping[str, Any]) -> dict[str, Any]:
    found = summary["findings"]
    kept = {key: summary[key] for key in ("verdict", "replicas", "records", "bytes", "seconds")}
    return {**kept, BAD: found[BAD], WARN: found[WARN]}


def _history(directory: str) -> list[dict[str, Any]]:
    """Earlier runs; a line that is damaged is left out."""
    lines = []
    try:
        # What is not UTF-8 is no JSON either.
        with open(os.path.join(directory, HISTORY), encoding="utf-8", errors="replace") as file:
            for text in file:
                try:
                    line = json.loads(text)
                    lines.append({"at": str(line["at"]), **_numbers(line)})
                except (ValueError, KeyError, TypeError):
                    continue
    except FileNotFoundError:
        pass
    return lines


def _numbers(line: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {key: int(line[key]) for key in ("replicas", "records", "bytes", BAD, WARN)}
    return {"verdict": str(line["verdict"]), "seconds": float(line["seconds"]), **numbers}
