"""Files, functions, constructors and nesting stay small enough to be taken in at once.

A thing that grows past a limit holds a second idea: find it and take it out. An exception below names its reason, and
goes when it is no longer needed.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support import floors

FILE_LINES = 400
FUNCTION_LINES = 60
CONSTRUCTOR_PARAMETERS = 8
NESTING = 4

# What is too large → why it stays so. A file by its path, a function or class as path::name.
EXCEPTIONS = {
    "broker/log/partition_log.py": "what changes a log shares one state; decision 25",
    "broker/replication/partition.py": "what changes a partition's leader, ISR and watermark shares one state",
    "broker/replication/follower/fetcher.py::LeaderFetcher": "each parameter is a port; the manager alone makes it",
    "broker/replication/hosted.py::Hosted": "each parameter is a port; Replicas alone makes it",
    "broker/replication/replicas.py::Replicas": "each parameter is a port; the composition root alone makes it",
    "logyard/admin/recovery/recovery.py::Recoverer": "each parameter is a port or a bound of one recovery",
    "operators/consuming.py::ConsumeFromTopicOperator": "keyword-only and stored, as Airflow's operators are",
    "operators/copying.py::CopyRecordsOperator": "keyword-only and stored, as Airflow's operators are",
    "operators/sensors/records.py::AwaitRecordSensor": "keyword-only and stored, as Airflow's operators are",
    "operators/reassignment.py::PlanReassignmentOperator": "keyword-only and stored, as Airflow's operators are",
    "operators/spark.py::ExportSegmentsOperator": "keyword-only and stored, as Airflow's operators are",
    "operators/triggers/records.py::AwaitRecordTrigger": "keyword-only and stored, as Airflow's triggers are",
}

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def nesting(node: ast.AST, depth: int = 0) -> int:
    """How deep blocks lie in each other below `node`; an `elif` is no deeper than its `if`, inner functions apart."""
    deepest = depth
    for child in floors.statements(node):
        if isinstance(child, NAMED):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child, depth + (isinstance(child, BLOCKS) and not is_elif)))
    return deepest


def parameters(of: ast.ClassDef) -> int:
    """How many parameters the class's own `__init__` takes, without `self` and `**`."""
    for item in of.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return len(item.args.posonlyargs) + len(item.args.args) + len(item.args.kwonlyargs) - 1
    return 0


def too_large(source: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield what is past a limit: its key in EXCEPTIONS, and what is wrong."""
    lines = source.count("\n")
    if lines > FILE_LINES:
        yield path, f"{lines} lines, at most {FILE_LINES}"
    for node in floors.all_statements(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and parameters(node) > CONSTRUCTOR_PARAMETERS:
            yield (
                f"{path}::{node.name}",
                f"its constructor takes {parameters(node)} parameters, at most {CONSTRUCTOR_PARAMETERS}",
            )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}::{node.name}", f"{length} lines, at most {FUNCTION_LINES}"
            if nesting(node) > NESTING:
                yield f"{path}::{node.name}", f"blocks {nesting(node)} deep, at most {NESTING}"


def looked_at(root: Path) -> Sequence[Path]:
    return [*floors.python_files(root), *sorted((root / "tests").rglob("*.py"))]


def test_nothing_is_too_large() -> None:
    found = [
        (key, what)
        for path in looked_at(floors.ROOT)
        for key, what in too_large(path.read_text(), str(path.relative_to(floors.ROOT)))
    ]
    assert [f"{key}: {what}" for key, what in found if key not in EXCEPTIONS] == []
    assert EXCEPTIONS.keys() - {key for key, _ in found} == set(), "these exceptions are no longer needed"


def test_planted_sizes_are_found() -> None:
    deep = "def f():\n for a in b:\n  if a:\n   pass\n  elif c:\n   with d:\n    while e:\n     if g:\n      pass\n"
    assert list(too_large(deep, "x.py")) == [("x.py::f", "blocks 5 deep, at most 4")]
    assert not list(too_large(deep.replace("     if g:\n      pass\n", "     pass\n"), "x.py"))
    wide = "class A:\n def __init__(self, " + ", ".join("abcdefghi") + "): pass\n"
    assert list(too_large(wide, "x.py")) == [("x.py::A", "its constructor takes 9 parameters, at most 8")]
    long = "def f():\n" + " pass\n" * 60
    assert list(too_large(long, "x.py")) == [("x.py::f", "61 lines, at most 60")]
    assert list(too_large("\n" * 401, "x.py")) == [("x.py", "401 lines, at most 400")]
