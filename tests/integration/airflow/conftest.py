"""A browser for the page's own server, which needs no Airflow (tests/support/page_host.py)."""

from collections.abc import Iterator

import pytest

from tests.support import airflow_home
from tests.support.browser import Browser, browser_or_skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for each file of tests, 1440 by 900."""
    pytest.importorskip("airflow.sdk")
    browser_or_skip()
    airflow_home.prepare()
    with Browser.start(tmp_path_factory.mktemp("browser")) as started:
        yield started
