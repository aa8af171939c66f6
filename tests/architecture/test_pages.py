"""ARCHITECTURE.md says what is true: its floors, its answers to "Where is…", the length of its walks, its few words."""

import re
import sys

from tests.support import floors, references

PAGE = (references.ROOT / "ARCHITECTURE.md").read_text()
QUESTION = re.compile(r"^\| ((?:is|are|does|do) [^|]*) \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
WALK = re.compile(r"^### [^\n]*: (\d+) files\n((?:\d+\. `[^`]+` [^\n]*\n)+)", re.MULTILINE)
WORDS_MAX = 20


def part(heading: str) -> str:
    """The text below a heading, up to the next one of its level."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def defined(path: str, name: str) -> bool:
    if path.endswith(".js"):
        text = (references.ROOT / path).read_text()
        return (
            re.search(rf"^(?:export )?(?:async )?(?:function|const) {re.escape(name)}\b", text, re.MULTILINE)
            is not None
        )
    return references.defines(path, name)


def test_the_floors_are_those_that_are_held() -> None:
    lines = references.FENCE.findall(part("The floors"))[0].splitlines()[1:-1]
    drawn = [tuple(re.split(r" \| ", re.split(r" {3,}", line)[0].strip())) for line in lines]
    assert drawn == list(floors.FLOORS)


def test_twenty_questions_are_answered() -> None:
    found = QUESTION.findall(part("Where is…"))
    assert len(found) == 20
    assert [
        (path, name) for _, path, name in found if path not in references.tracked() or not defined(path, name)
    ] == []


def test_walks_have_the_length_that_they_say() -> None:
    walks = WALK.findall(part("Four walks"))
    assert len(walks) == 4
    for count, steps in walks:
        files = re.findall(r"^(\d+)\. `([^`]+)`", steps, re.MULTILINE)
        assert [int(number) for number, _ in files] == list(range(1, int(count) + 1))
        assert [name for _, name in files if name not in references.tracked()] == []
        assert len({name for _, name in files}) == int(count)


def test_every_folder_above_the_broker_is_named() -> None:
    named = re.findall(r"^\| `([^`]+)` \|", part("The folders above the broker"), re.MULTILINE)
    above = ("plugins/logyard_ui", "operators", "spark_jobs", "logyard/admin")
    there = [
        str(path.parent.relative_to(references.ROOT))
        for folder in above
        for path in (references.ROOT / folder).glob("*/__init__.py")
    ]
    assert sorted(named) == sorted(there)


def test_every_file_of_the_page_is_named() -> None:
    text = (references.ROOT / "docs/page.md").read_text()
    files = sorted(path.name for path in (references.ROOT / "plugins/logyard_ui/static").glob("*.js"))
    assert len(files) > 40
    assert [name for name in files if f"`{name}`" not in text] == []


def test_our_own_words_are_few() -> None:
    rows = re.findall(r"^\| ([a-z][a-z, ]*) \| ", part("Words"), re.MULTILINE)
    words = [word for row in rows if row != "word" for word in row.split(", ")]
    assert 10 <= len(words) <= WORDS_MAX


def test_libraries_are_imported_where_decision_5_says() -> None:
    page = (references.ROOT / "docs/decisions/0005-libraries.md").read_text()
    places: dict[str, list[str]] = {}
    for libraries, paths in re.findall(r"^\| ([a-z][^|]*) \| [^|]* \| (`[^|]*) \|$", page, re.MULTILINE):
        for library in re.sub(r" \([^)]*\)", "", libraries).split(", "):
            places[{"kafka-python": "kafka"}.get(library, library)] = re.findall(r"`([^`]+)`", paths)
    found = [
        f"{path} imports {root}"
        for path in floors.python_files(floors.ROOT)
        for root in {
            name.split(".")[0] for name in floors.imports(path.read_text(), floors.module_name(path, floors.ROOT))
        }
        if root and root not in sys.stdlib_module_names and root not in ("logyard", *floors.TOP_FOLDERS)
        if not str(path.relative_to(floors.ROOT)).startswith(tuple(places.get(root, ())))
    ]
    assert found == []


def test_planted_faults_are_found() -> None:
    assert not defined("tests/support/floors.py", "no_such_name")
    assert defined("tests/support/floors.py", "FLOORS")
