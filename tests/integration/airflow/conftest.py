"""A browser for the page's own server, which needs no Airflow (tests/support/page_host.py)."""

from collections.abc import Iterator

import pytest

from tests.support import airflow_home
from tests.support.browser import Browser, browser_or_skip


@pytest.fixture(scope="session")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("airflow.sdk")
    browser_or_skip()
    airflow_home.prepare()
    with Browser.start(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """For each file of tests as if it were new, 1440 by 900: pages have their own addresses, so nothing that they keep
    is the next one's."""
    shared_browser.clear()
    yield shared_browser
    shared_browser.clear()  # else the page goes on asking
