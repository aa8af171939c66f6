"""Every case of Kafka's tests of transactions and security has a test of ours that exists, or a reason for none."""

import re

import pytest

from tests.support import references

DOCS = references.ROOT / "docs"
HEADS = r"\| (Kafka's test|fault|n \| case|case in Kafka|case) "


def missing(text: str) -> list[str]:
    """Return the rows of the page's tables whose last column names neither a test that exists nor a reason."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not re.match(HEADS, line)]
    return [row for row in rows if not _is_held(row.strip("| ").rpartition(" | ")[2])]


def _is_held(ours: str) -> bool:
    named = re.findall(r"`((?:test_|tests/)[\w./]+)`", ours)
    return ours.startswith("*no*: ") or bool(named and not references.unknown(ours))


def wrong_counts(text: str) -> list[str]:
    """Return the sections whose rows do not have as many cases as their head says, by kind too."""
    wrong = []
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        told = re.search(r"^(\d+) cases: (.*)\.$", section, re.MULTILINE)
        counted = re.findall(r"^\| (\d+) \| .* \| (\*no\*: )?.*$", section, re.MULTILINE)
        ours = sum(int(number) for number, no in counted if not no)
        others = sum(int(number) for number, no in counted if no)
        if told is None:
            wrong.append(section.splitlines()[0])
            continue
        kinds = {word: int(number) for number, word in re.findall(r"(\d+) (held|by|not)", told[2])}
        found = (kinds.get("held", 0) + kinds.get("by", 0), kinds.get("not", 0))
        if found != (ours, others) or int(told[1]) != ours + others:
            wrong.append(section.splitlines()[0])
    return wrong


@pytest.mark.parametrize(("page", "rows"), [("transactions-cases.md", 80), ("security-cases.md", 300)])
def test_every_case_has_a_test_or_a_reason(page: str, rows: int) -> None:
    text = (DOCS / page).read_text()
    assert missing(text) == []
    assert len(re.findall(r"^\| ", text, re.MULTILINE)) > rows


def test_the_numbers_of_cases_add_up() -> None:
    text = (DOCS / "security-cases.md").read_text()
    assert wrong_counts(text) == []
    told = [int(number) for number in re.findall(r"^(\d+) cases: ", text, re.MULTILINE)]
    assert f"Together {sum(told)} cases" in text


def test_planted_rows_are_found() -> None:
    rows = ["| someCase | |", "| someCase | it holds |", "| someCase | `test_none_such_here` |", "| someCase | *no* |"]
    assert missing("\n".join(rows)) == rows
    assert missing("| Kafka's test | ours |\n|---|---|\n| someCase | `test_bad_time_outs` |") == []
    section = (
        "### A\n\n3 cases: 2 held before, 1 not ours.\n\n| n | case | ours |\n| 2 | x | `y` |\n| {} | z | *no*: w |\n"
    )
    assert wrong_counts(section.format(1)) == []
    assert wrong_counts(section.format(2)) == ["A"]
