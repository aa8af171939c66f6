"""The files of the page: three that Airflow imports, and all others under an address that a browser keeps for good."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from logyard.plugins.logyard_ui.static_files import STATIC, Editions
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Connections, PageClient, make_app

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize("name", ["page", "dashboard_tile", "run_tab"])
def test_modules_of_the_view(cluster: MemoryCluster, known: Connections, name: str) -> None:
    asked = PageClient(make_app(cluster))
    found = asked.answer(f"/static/{name}.js")
    assert (found.status_code, found.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert "no-cache" in found.headers["cache-control"]
    again = asked.answer(f"/static/{name}.js", **{"If-None-Match": found.headers["etag"]})
    assert again.status_code == 304
    # All that it needs is there under the version that it names, and a browser keeps it.
    version = re.findall(r'import\("\./([0-9a-f]{16})/', found.text)[0]
    first_line = found.text.splitlines()[0]
    needed = json.loads(first_line[first_line.index("[") : first_line.index("]") + 1])
    assert needed[0] == name
    for one in needed:
        answer = asked.answer(f"/static/{version}/{one}.js")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        assert "immutable" in answer.headers["cache-control"]
        assert answer.text == (STATIC / f"{one}.js").read_text()
        imported = re.findall(r'from "\./([a-z0-9_/-]+)\.js"', answer.text)
        assert set(imported) <= set(needed)


def test_a_module_of_another_version_is_not_kept(cluster: MemoryCluster, known: Connections) -> None:
    answer = PageClient(make_app(cluster)).answer(f"/static/{'0' * 16}/api.js")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "private, no-cache"


def test_an_edited_module_has_another_address(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    for name, text in (("page", 'import { a } from "./a.js";'), ("a", 'import b from "./vendor/b.js";')):
        (tmp_path / f"{name}.js").write_text(text)
    (tmp_path / "vendor" / "b.js").write_text("export default 1;")
    editions = Editions(tmp_path)
    first = editions.now()
    assert first.needed("page") == ["page", "a", "vendor/b"]
    assert editions.now() is first
    (tmp_path / "vendor" / "b.js").write_text("export default 22;")
    assert editions.now().version != first.version


@pytest.mark.parametrize(
    "name",
    [
        *("nothing.js", "..%2F..%2Fplugin.js", "%2e%2e/plugin.py", "PAGE.js", "page.js.map", "page", "api.js"),
        *("vendor/uplot.js", f"{'0' * 16}/nothing.js", f"{'0' * 16}/..%2Fapi.js", "0123/api.js"),
    ],
)
def test_nothing_else_is_served(cluster: MemoryCluster, known: Connections, name: str) -> None:
    assert PageClient(make_app(cluster)).answer(f"/static/{name}").status_code in (404, 422)
