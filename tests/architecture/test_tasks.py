"""Nothing runs beside the rest unless it is known what becomes of an exception in it."""

import ast

import pytest

from tests.support import floors

STARTS = ("create_task", "ensure_future", "TaskGroup", "Thread", "start_new_thread", "Timer")

# Who may start something by hand, and what becomes of an exception there.
KNOWN = {
    "admin.cluster.connection": "a warning in the log, which raises nothing",
    "broker.tasks": "the one place: logged, counted, tried again",
    "broker.cleaner.child": "its thread ends the process where it ends, and the broker starts another",
    "operators.triggers.watch": "_poll hands every exception to all who wait, and the next to wait begins it anew",
    "plugins.logyard_ui.cache.cache": "waits for a future; the exception is kept beside the value",
    "plugins.logyard_ui.history.sampler": "a round that fails is told on the page, and is no reason to skip the next",
    "plugins.logyard_ui.cache.worker": "_run hands every exception to its future",
    "spark_jobs.leases.heartbeats": "a beat that fails is told and is no reason to skip the next",
    "spark_jobs.leases.keeper": "a look that fails is told and is no reason to skip the next",
    "spark_jobs.tables.catalog": "_within hands every exception to the future that it waits for",
    "spark_jobs.export.staging": "touching a file raises nothing but OSError, which is left to the next beat",
    "local.demo.traffic": "the demo looks at what failed when it ends",
}


def starts(source: str) -> list[str]:
    """The calls in a file that begin a task or a thread."""
    if not any(name in source for name in STARTS):
        return []
    called = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    names = (f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else "" for f in called)
    return [name for name in names if name in STARTS]


def test_tasks_are_started_in_one_way() -> None:
    found = {
        floors.module_name(path, floors.ROOT) for path in floors.python_files(floors.ROOT) if starts(path.read_text())
    }
    assert found == set(KNOWN), "start it by logyard.broker.tasks, or say here what becomes of an exception"


@pytest.mark.parametrize(
    "planted",
    [
        "import asyncio\nasyncio.get_running_loop().create_task(f())",
        "from asyncio import ensure_future\nensure_future(f())",
        "import threading\nthreading.Thread(target=f).start()",
        "async def f():\n    async with asyncio.TaskGroup() as group:\n        pass",
    ],
)
def test_planted_ones_are_found(planted: str) -> None:
    assert starts(planted)
