"""What code and docs refer to (sections of the facts, links, files, members, tests), and whether it is there."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "docs" / "facts"

NUMBER = r"\d+(?:\.\d+)?"
# In comments a citation may go on in the next line, behind its `#`.
GAP = r"\s+(?:#\s*)?"
CITATION = re.compile(rf"\b[Ff]acts{GAP}§{NUMBER}(?:(?:,|{GAP}and|{GAP}to){GAP}§{NUMBER}|-§{NUMBER})*")
HEADING = re.compile(rf"^## §({NUMBER}) ", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OLD_PAGES = re.compile(r"\b(?:kafka|broker|operations|spark|airflow|security|transactions|objectstore)-facts\b")

# Names in backticks that are meant to name something of this repository.
FILE = re.compile(r"^[\w.{},*-]+(?:/[\w.{},*-]+)*\.(?:py|md|toml|yaml|lock|js|jsx|css|sh)$")
FOLDERS = ("broker", "logyard", "operators", "plugins", "dags", "spark_jobs", "tests", "docs", "scripts", "docker")
# logyard/ links to these; git lists their files below the folders themselves.
LINKED = re.compile(r"^logyard/(?=(?:broker|operators|plugins|dags|spark_jobs)(?:/|$))")
MODULE = re.compile(r"^(?:logyard|tests)(?:\.[A-Za-z_]\w*)+$")
# A file's name in a comment or docstring; names in quotes are values of the code.
NAMED_FILE = re.compile(r"(?<![\w/.\"'*-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b")
TEST = re.compile(r"^test_\w+[…*]?$")
CLASS = re.compile(r"^[A-Z]\w+(?:Operator|Sensor|Event|Trigger|Hook)$")
MEMBER = re.compile(r"^([a-z_]+\.[A-Z]\w*(?:\.\w+)?|[A-Z]\w*[a-z]\w*\.[a-z_]\w+)(?:\(\))?$")


@cache
def tracked() -> tuple[str, ...]:
    """Paths of all tracked files, relative to the root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


def texts(*suffixes: str) -> Iterator[tuple[str, str]]:
    """(path, text) of the tracked files with one of these endings."""
    for name in tracked():
        if name.endswith(suffixes):
            yield name, (ROOT / name).read_text()


def sections() -> dict[str, str]:
    """Number of each section of the facts and its page. Raises AssertionError where a number is used twice."""
    found: dict[str, str] = {}
    for page in sorted(FACTS.glob("*.md")):
        for number in HEADING.findall(page.read_text()):
            assert number not in found, f"§{number} is in {found[number]} and in {page.name}"
            found[number] = page.name
    return found


def citations(text: str) -> list[str]:
    """The numbers that a text outside the facts cites."""
    return [number for cited in CITATION.findall(text) for number in re.findall(rf"§({NUMBER})", cited)]


def unclear_citations(text: str) -> list[str]:
    """What uses the sign § in another form than `facts §13`, or calls a page by a name that it does not have."""
    rest = CITATION.sub("", text)
    return [rest[max(0, at.start() - 30) : at.end() + 10] for at in re.finditer("§", rest)] + OLD_PAGES.findall(text)


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def dead_links(page: Path, text: str) -> list[str]:
    """Relative links of a page whose file or heading does not exist."""
    dead = []
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in slugs(file.read_text())):
            dead.append(target)
    return dead


def names(text: str) -> set[str]:
    """The words in backticks, without those in blocks of code."""
    spans = CODE.findall(FENCE.sub("", text))
    return {word.strip("(),;:") for span in spans for word in span.split()}


def unknown(text: str) -> list[str]:
    """Names in backticks that look like a file, module, class member or test of this repository and are none."""
    return sorted(name for name in names(text) if not known(name))


@cache
def known(name: str) -> bool:
    """Whether a name exists here, or is none that would have to."""
    if any(sign in name for sign in "<>?="):
        return True
    if "::" in name:
        file, _, test = name.partition("::")
        return known(file) and known(test.rpartition("::")[2])
    if FILE.match(name) or (name.split("/")[0] in FOLDERS and "/" in name):
        return all(_file_exists(one) for one in _braces(name))
    if MODULE.match(name):
        return _dotted_exists(name) or _is_a_setting(name)
    if TEST.match(name):
        return _test_exists(name)
    if CLASS.match(name):
        return name in _classes()
    if MEMBER.match(name):
        return _member_exists(name.removesuffix("()"))
    return True


def missing_files(text: str) -> list[str]:
    """Python files and pages that code names in comments and docstrings, and that are not there."""
    return sorted(name for name in set(NAMED_FILE.findall(text)) if not _file_exists(name))


def missing_imports(text: str) -> list[str]:
    """Imports from this repository, in a page's examples, that would fail."""
    missing: list[str] = []
    for module, imported in re.findall(r"^ *from (logyard[\w.]*) import ([\w, ]+)", text, re.MULTILINE):
        names_here = re.findall(r"\w+", imported.split(" as ")[0])
        missing += [
            f"{module}.{name}"
            for name in names_here
            if not _dotted_exists(f"{module}.{name}") and not _imports(module, name)
        ]
    return missing


def defines(path: str, name: str) -> bool:
    """Whether the file defines this function, class, `Class.method` or constant at its top."""
    first, _, member = name.partition(".")
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == first:
            return not member or member in _members(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == first:
            return not member
        if first in _assigned(node):
            return True
    return False


def _members(owner: ast.ClassDef) -> set[str]:
    found = {node.name for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return found.union(*(_assigned(node) for node in owner.body))


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _braces(name: str) -> list[str]:
    group = re.search(r"\{([^{}]*)\}", name)
    if group is None:
        return [name]
    return [name[: group.start()] + one + name[group.end() :] for one in group[1].split(",")]


@cache
def _file_exists(name: str) -> bool:
    plain = LINKED.sub("", name).rstrip("/")
    pattern = re.compile(r"(?:.*/)?" + re.escape(plain).replace(r"\*", "[^/]*") + r"(?:/.*)?")
    return any(pattern.fullmatch(path) for path in tracked())


@cache
def _python() -> dict[str, str]:
    return {path: (ROOT / path).read_text() for path in tracked() if path.endswith(".py")}


def _dotted_exists(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        path = LINKED.sub("", path)
        rest = ".".join(parts[length:])
        if f"{path}.py" in _python():
            return not rest or defines(f"{path}.py", rest)
        if f"{path}/__init__.py" in _python() or any(one.startswith(f"{path}/") for one in _python()):
            return not rest
    return False


def _imports(module: str, name: str) -> bool:
    text = _python().get(LINKED.sub("", module.replace(".", "/")) + ".py", "")
    imported = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
    return any((alias.asname or alias.name) == name for node in imported for alias in node.names)


def _is_a_setting(name: str) -> bool:
    return any(f'"{name}"' in text for text in _python().values())


@cache
def _classes() -> frozenset[str]:
    return frozenset(name for text in _python().values() for name in re.findall(r"^class (\w+)", text, re.MULTILINE))


@cache
def _tests() -> frozenset[str]:
    """What files of tests define, and their own names."""
    found = {path: text for path, text in _python().items() if path.startswith("tests/")}
    defined = {name for text in found.values() for name in re.findall(r"def (test_\w+)\(", text)}
    return frozenset(defined.union(Path(path).stem for path in found))


def _test_exists(name: str) -> bool:
    begins = name.rstrip("…*")
    return begins in _tests() if begins == name else any(one.startswith(begins) for one in _tests())


def _member_exists(name: str) -> bool:
    first, _, rest = name.partition(".")
    if first[0].isupper():
        return any(f"class {first}" in text and defines(path, name) for path, text in _python().items())
    return any(Path(path).stem == first and defines(path, rest) for path in _python())
