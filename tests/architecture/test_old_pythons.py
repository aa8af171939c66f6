"""What runs beside Airflow or on Spark's executors uses nothing that Python 3.10 lacks; brokers need 3.11."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("operators", "plugins", "dags", "logyard/admin", "logyard/login", "spark_jobs")
# Of the modules that are used here: what came with 3.11 or later.
LATER = {
    "asyncio": {"Runner", "TaskGroup", "timeout", "timeout_at"},
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"ReprEnum", "StrEnum", "member", "nonmember", "verify"},
    "hashlib": {"file_digest"},
    "itertools": {"batched"},
    "sys": {"exception"},
    "typing": {"LiteralString", "Never", "NotRequired", "Required", "Self", "assert_never", "assert_type", "override"},
}


def uses(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name) for one in node.names if one.name == "tomllib")
        elif isinstance(node, ast.ImportFrom):
            known = LATER.get(node.module or "", set())
            yield from ((node.lineno, one.name) for one in node.names if one.name in known)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in LATER.get(node.value.id, set()):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _lacks_order(node.func.attr, node):
            yield node.lineno, f"{node.func.attr} without the order of bytes"


def _lacks_order(name: str, call: ast.Call) -> bool:
    """It has a default since 3.11."""
    return name in ("from_bytes", "to_bytes") and len(call.args) < 2 and not call.keywords


def test_nothing_that_python_310_lacks_is_used() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for part in PARTS
        for path in sorted((ROOT / part).rglob("*.py"))
        for line, what in uses(path.read_text())
    ]
    assert found == []


def test_what_it_looks_for_is_found() -> None:
    source = "from datetime import UTC\nimport asyncio, tomllib\nasyncio.timeout(1)\nint.from_bytes(b'')\n"
    assert [what for _, what in sorted(uses(source))] == [
        *("UTC", "tomllib", "asyncio.timeout"),
        "from_bytes without the order of bytes",
    ]
