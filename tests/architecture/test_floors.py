"""Imports go down only, and every tracked Python file was looked at."""

import subprocess

from tests.support import floors


def test_no_file_breaks_a_rule() -> None:
    found = [
        line
        for path in floors.python_files(floors.ROOT)
        for line in floors.violations(path.read_text(), floors.module_name(path, floors.ROOT))
    ]
    assert found == []


def test_every_tracked_file_was_seen() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=floors.ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    # The examples are their readers' DAGs, and no part of the package.
    apart = ("tests/", "docs/examples/")
    product = {name for name in listed if not name.startswith(apart) and name != "logyard/__init__.py"}
    seen = {str(path.relative_to(floors.ROOT)) for path in floors.python_files(floors.ROOT)}
    assert product - seen == set()


def test_planted_violations_are_found() -> None:
    upwards = "from logyard.broker.server import dispatch\n"
    assert floors.violations(upwards, "broker.log.layout")
    inside_a_function = "def f():\n    import logyard.broker.controller.runner\n"
    assert floors.violations(inside_a_function, "broker.metadata.cache")
    relative = "from ..server import dispatch\n"
    assert floors.violations(relative, "broker.log.layout")
    neighbour = "from logyard.broker.groups import groups\n"
    assert floors.violations(neighbour, "broker.controller.topics")
    bare = "import broker\n"
    assert floors.violations(bare, "operators.topics")
    too_wide = "from logyard.broker.controller.runner import ControllerRunner\n"
    assert floors.violations(too_wide, "admin.cluster.client")
    assert not floors.violations(
        "from logyard.broker.controller.topics import placement\n", "admin.reassignment.planner"
    )


def test_package_init_files_are_empty() -> None:
    full = [
        str(path)
        for path in floors.python_files(floors.ROOT)
        if path.name == "__init__.py" and path.read_text().strip()
    ]
    assert full == []
