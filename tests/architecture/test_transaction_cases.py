"""Every case of Kafka's tests of transactions has a test of ours that exists, or a reason why it has none."""

import re

from tests.support import references

PAGE = references.ROOT / "docs" / "transactions-cases.md"


def missing(text: str) -> list[str]:
    """Return the rows of the page's tables whose last column names neither a test that exists nor a reason."""
    rows = [
        line for line in text.splitlines() if line.startswith("| ") and not re.match(r"\| (Kafka's test|fault) ", line)
    ]
    return [row for row in rows if not _is_held(row.strip("| ").rpartition(" | ")[2])]


def _is_held(ours: str) -> bool:
    named = re.findall(r"`((?:test_|tests/)[\w./]+)`", ours)
    return ours.startswith("*no*: ") or bool(named and not references.unknown(ours))


def test_every_case_has_a_test_or_a_reason() -> None:
    text = PAGE.read_text()
    assert missing(text) == []
    assert len(re.findall(r"^\| ", text, re.MULTILINE)) > 80


def test_a_planted_row_is_found() -> None:
    rows = ["| someCase | |", "| someCase | it holds |", "| someCase | `test_none_such_here` |", "| someCase | *no* |"]
    assert missing("\n".join(rows)) == rows
    assert missing("| Kafka's test | ours |\n|---|---|\n| someCase | `test_bad_time_outs` |") == []
