"""Airflow's home is a directory of these tests' own, set before any of them imports Airflow: else it is the user's.

A test that runs again (`--reruns`) has the fixtures of its file made anew: topics, offsets and groups that its first
run has left there would have it fail again, whatever was the matter at first.
"""

from typing import Any

import pytest

from tests.support import airflow_home

airflow_home.prepare()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if getattr(item, "execution_count", 1) == 1 or not isinstance(item, pytest.Function):
        return
    request: Any = item._request
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            if definition.scope == "module":
                definition.finish(request)
