"""The API reference that `scripts/api-docs` makes of docstrings: every class that a DAG's author names is in it."""

import importlib
import inspect
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.operators.provider_info import get_provider_info
from tests.support import references
from tests.support.needed import lacks

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(400)]

PARTS = ("operators", "sensors", "hooks", "triggers")


def test_every_operator_sensor_hook_and_trigger_is_described(tmp_path: Path) -> None:
    script = references.ROOT / "scripts" / "api-docs"
    done = subprocess.run([script, tmp_path], capture_output=True, text=True, timeout=360, check=False)
    if done.returncode and "pdoc" in done.stderr and not (references.ROOT / ".logyard" / "pdoc").exists():
        lacks(f"pdoc cannot be had: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "index.html").exists()
    info = get_provider_info()
    modules = [name for part in PARTS for entry in info[part] for name in entry["python-modules"]]
    assert len(modules) > 20
    for name in modules:
        page = (tmp_path / f"{name.replace('.', '/')}.html").read_text()
        found = _classes(name)
        assert found, name
        for one in found:
            assert f'id="{one.__name__}"' in page, (name, one)
            assert one.__doc__, (name, one)
            arguments = re.findall(r":param (\w+):", one.__doc__)
            assert [argument for argument in arguments if argument not in page] == [], (name, one)


def _classes(module: str) -> list[Any]:
    found = importlib.import_module(module)
    return [
        one
        for name, one in inspect.getmembers(found, inspect.isclass)
        if one.__module__ == module and not name.startswith("_")
    ]
