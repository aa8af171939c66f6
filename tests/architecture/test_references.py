"""What code and docs refer to exists: sections of the facts, links, and files, modules, members and tests by name."""

import re
import tomllib

from tests.support import references

PAGES = tuple(name for name in references.tracked() if name.endswith(".md"))
# What happened is told under the names of its time.
HISTORY = ("CHANGELOG.md",)
# Names that look like ours and belong to others, or to what a run leaves behind; by page, with the owner.
OTHERS = {
    "BaseEventTrigger.shared_stream_key": "Airflow's",
    "SparkSubmitOperator": "Airflow's",
    "String.hashCode": "Java's",
    "tests/test.conf": "in librdkafka's source",
    "./NAME.js": "any module of the page",
    "static/VERSION/NAME.js": "any module of the page",
}

OTHERS_FILES = {
    "kafka/__init__.py": "kafka-python's",
    "own.py": "a user's DAG",
    "2e/plugin.py": "in a path that the page refuses",
}


def test_every_citation_of_a_fact_leads_to_its_section() -> None:
    found = references.sections()
    lost = [
        f"{name}: facts §{number}"
        for name, text in references.texts(".py", ".md")
        if not name.startswith("docs/facts/")
        for number in references.citations(text)
        if number not in found
    ]
    assert lost == []


def test_the_facts_refer_to_their_own_sections() -> None:
    found = references.sections()
    lost = [
        f"{page.name}: §{number}"
        for page in references.FACTS.glob("*.md")
        for number in re.findall(rf"§({references.NUMBER})", page.read_text())
        if number not in found
    ]
    assert lost == []


def test_facts_are_cited_in_one_form() -> None:
    skip = ("docs/facts/", "tests/support/references.py", "tests/architecture/test_references.py")
    unclear = {
        name: found
        for name, text in references.texts(".py", ".md", ".toml", ".yaml", "Makefile")
        if not name.startswith(skip) and (found := references.unclear_citations(text))
    }
    assert unclear == {}


def test_the_index_of_the_facts_lists_each_section_on_its_page() -> None:
    listed: dict[str, str] = {}
    for line in (references.FACTS / "README.md").read_text().splitlines():
        if row := re.match(r"\| \[([\w-]+\.md)\]\(\1\) \| (.*) \|", line):
            for number, last in re.findall(rf"§({references.NUMBER})(?: to §({references.NUMBER}))?", row[2]):
                whole, _, first = number.partition(".")
                numbers = (
                    [f"{whole}.{n}" for n in range(int(first), int(last.partition(".")[2]) + 1)] if last else [number]
                )
                listed |= dict.fromkeys(numbers, row[1])
    assert listed == references.sections()


def test_no_link_is_dead() -> None:
    dead = {
        name: found
        for name, text in references.texts(".md")
        if (found := references.dead_links(references.ROOT / name, text))
    }
    assert dead == {}


def test_the_index_of_the_decisions_lists_all() -> None:
    folder = references.ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| \[(\d+)\]\((\d+)-[\w-]+\.md\)", (folder / "README.md").read_text(), re.MULTILINE)
    there = [page.name[:4] for page in sorted(folder.glob("0*.md"))]
    assert [number for _, number in listed] == there
    assert all(int(shown) == int(number) for shown, number in listed)


def test_what_pages_name_is_there() -> None:
    missing = {
        name: found
        for name, text in references.texts(".md")
        if name not in HISTORY and (found := [one for one in references.unknown(text) if one not in OTHERS])
    }
    assert missing == {}


def test_files_that_code_names_are_there() -> None:
    missing = {
        name: lost
        for name, text in references.texts(".py", ".js", ".toml", ".yaml", "Makefile")
        if not name.startswith(("tests/architecture/", "tests/unit/house/"))
        and (lost := [one for one in references.missing_files(text) if one not in OTHERS_FILES])
    }
    assert missing == {}


def test_examples_import_what_is_there() -> None:
    missing = {name: lost for name, text in references.texts(".md") if (lost := references.missing_imports(text))}
    assert missing == {}


def test_no_exception_is_left_over() -> None:
    used = {one for name, text in references.texts(".md") if name not in HISTORY for one in references.unknown(text)}
    assert set(OTHERS) - used == set()


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    package = tomllib.loads((references.ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.findall(r"^## (\S+)", (references.ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == package


def test_planted_faults_are_found() -> None:
    assert references.citations("as said (facts §13,\n    # §22 and §10), facts §9-§11") == [
        "13",
        "22",
        "10",
        "9",
        "11",
    ]
    assert references.unclear_citations("see §13")
    assert references.unclear_citations("kafka" + "-facts.md")
    assert not references.unclear_citations("Facts §13: all of it")
    page = references.ROOT / "README.md"
    assert references.dead_links(page, "[a](docs/none.md) [b](ARCHITECTURE.md#no-such-heading)") == [
        "docs/none.md",
        "ARCHITECTURE.md#no-such-heading",
    ]
    assert references.dead_links(page, "[a](ARCHITECTURE.md#the-floors) [b](https://kafka.apache.org/)") == []
    wrong = "`broker/none.py` `none_such.py` `logyard.broker.none` `test_none_such` `floors.NoSuch` `Path.no_such`"
    assert len(references.unknown(wrong)) == 6
    assert references.missing_files("# see no_such.py and floors.py") == ["no_such.py"]
    assert references.missing_imports("from logyard.broker.model import NoSuch, TopicPartition") == [
        "logyard.broker.model.NoSuch"
    ]
    right = "`architecture/test_references.py` `tests/{unit,support}` `tests.support.floors` `floors.FLOORS`"
    assert references.unknown(right) == []
