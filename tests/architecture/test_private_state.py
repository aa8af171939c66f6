"""No test reaches into what a class or module keeps for itself: it goes through what is public, or through a seam.

A test that reads private state holds the code to how it is written instead of to what it does. Where a test cannot see
or disturb what it is about, the class gets a public property or port, or the test's world a method. A subclass may use
what its base class keeps (through `self`, `cls`, `super()`); `_replace` and `_asdict` are public in a NamedTuple, and
`KafkaError._TIMED_OUT` and the like are the public names of librdkafka's own errors.
"""

import ast
import re
from collections.abc import Iterator

from tests.support import floors

NAMED_TUPLE = ("_replace", "_asdict", "_fields", "_make")
OWN = ("self", "cls")
LIBRDKAFKA = "KafkaError"
BY_NAME = ("getattr", "setattr", "delattr", "hasattr")

# File → names → why there is no other way.
EXCEPTIONS = {
    "tests/properties/test_topics_against_aiokafka.py": (
        {"_DefaultRecordBatchPy", "_LegacyRecordBatchPy", "_LegacyRecordBatchBuilderPy"},
        "aiokafka's decoders without C, which damaged bytes cannot crash, have public names only without its C code",
    ),
    "tests/support/token_driver.py": (
        {"_jsc", "_jvm"},
        "PySpark has no other way to Spark's provider of tokens for Kafka, nor to the scheduler that hands them out",
    ),
    "tests/simulation/loop.py": (
        {"_scheduled", "_cancelled", "_context", "_callback", "_args"},
        "an event loop of asyncio's own parts, which call back as BaseEventLoop has them do",
    ),
    "tests/support/steady_loop.py": (
        {"_selector"},
        "a loop that another has made, such as pytest's, takes no other clock in a public way",
    ),
    "tests/unit/transactions/test_many.py": (
        {"_run_once"},
        "what is written in one turn of asyncio's loop is seen by nothing else: a task beside sees parts of two turns",
    ),
    "tests/simulation/process.py": (
        {"_log_destroy_pending"},
        "a killed process leaves its tasks unfinished, and asyncio has no other way not to complain of each",
    ),
}

# What a file has to contain for a look at its tree to be worth while.
PERHAPS = re.compile(r"(?<!self)(?<!cls)\._[a-zA-Z]|attr\(|import .*\b_[a-zA-Z]|^    _[a-zA-Z]\w*,$", re.MULTILINE)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in NAMED_TUPLE


def reached_into(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything private that is not the code's own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = node.value
            is_base = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"
            name = owner.id if isinstance(owner, ast.Name) else ""
            is_error = name == LIBRDKAFKA and node.attr.isupper()
            if not is_base and name not in OWN and not is_error:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            texts = [given.value for given in node.args[:2] if isinstance(given, ast.Constant)] * (called in BY_NAME)
            yield from (
                (node.lineno, name)
                for text in texts
                if isinstance(text, str)
                for name in text.split(".")
                if is_private(name)
            )


def test_no_test_reaches_into_private_state() -> None:
    found = []
    used: set[tuple[str, str]] = set()
    for path in sorted((floors.ROOT / "tests").rglob("*.py")):
        source, where = path.read_text(), str(path.relative_to(floors.ROOT))
        if where == "tests/architecture/test_private_state.py" or not PERHAPS.search(source):
            continue
        excused, _ = EXCEPTIONS.get(where, (set(), ""))
        for line, name in reached_into(source):
            if name in excused:
                used.add((where, name))
            else:
                found.append(f"{where}:{line}: {name}")
    assert found == []
    excused_names = {(where, name) for where, (names, _) in EXCEPTIONS.items() for name in names}
    assert excused_names == used, "an exception is no longer needed"


def test_planted_reaches_are_found() -> None:
    planted = (
        "from a.b import _c\n"
        "store._chores.stop()\n"
        "monkeypatch.setattr(store, '_open', f)\n"
        "monkeypatch.setattr('a.b._PAUSE', 0)\n"
        "self._own, cls._own, super()._run(), row._replace(a=1), _local\n"
        "self.world._inner\n"
    )
    assert [name for _, name in sorted(reached_into(planted))] == ["_c", "_chores", "_open", "_PAUSE", "_inner"]
    assert all(PERHAPS.search(line) for number, line in enumerate(planted.splitlines()) if number != 4)
