"""The plugin: registered once, light to load, its views there, nothing of them set as HTML."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[3]
STATIC = ROOT / "plugins/logyard_ui/static"


def test_every_view_is_a_module_that_sets_its_global() -> None:
    from logyard.plugins.logyard_ui.plugin import LogyardPlugin

    names = [app["name"] for app in LogyardPlugin.react_apps]
    routes = [app["url_route"] for app in LogyardPlugin.react_apps if "url_route" in app]
    # Airflow finds a view by its route, and keeps the component under its name.
    assert len(set(names)) == len(names)
    assert len(set(routes)) == len(routes)
    for app in LogyardPlugin.react_apps:
        module = STATIC / app["bundle_url"].removeprefix("logyard/static/")
        name = app["name"]
        said = module.read_text()
        assert f'globalThis["{name}"] =' in said or f"globalThis.{name} =" in said


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("", []),
        (" https://docs.example.com/logyard/ ", ["https://docs.example.com/logyard/"]),
        ("javascript:alert(1)", []),
    ],
)
def test_docs_that_a_house_has_published_are_linked(
    monkeypatch: pytest.MonkeyPatch, given: str, shown: list[str]
) -> None:
    from logyard.dags.factories import params
    from logyard.plugins.logyard_ui.plugin import docs_menu

    monkeypatch.setenv("AIRFLOW__LOGYARD__DOCS_URL", given)
    assert [entry["href"] for entry in docs_menu()] == ["logyard/docs", *shown]
    text = params.docs("What it does.", "logyard_default")
    assert [f"[Logyard's docs]({href})" in text for href in shown] == [True] * len(shown)
    assert ("Logyard's docs" in text) == bool(shown)


def test_no_view_sets_html() -> None:
    for module in STATIC.glob("*.js"):
        source = module.read_text()
        for dangerous in (
            "innerHTML",
            "outerHTML",
            "dangerouslySetInnerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert dangerous not in source, module.name


def test_loading_the_plugin_loads_no_web_framework() -> None:
    script = (
        "import sys, airflow.plugins_manager, airflow.sdk; before = set(sys.modules)\n"
        "import logyard.plugins.logyard_ui.plugin as p\n"
        "heavy = ('fastapi', 'airflow.api_fastapi', 'kafka', 'kazoo')\n"
        "print([m for m in set(sys.modules) - before if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_the_shim_defines_nothing_beside_the_entry_point() -> None:
    shim = ROOT / "plugins/logyard_plugin.py"
    scope: dict[str, object] = {}
    exec(compile(ast.parse(shim.read_text()), str(shim), "exec"), scope)
    assert "LogyardPlugin" not in scope
    assert "logyard_ui/" in (ROOT / "plugins/.airflowignore").read_text()
