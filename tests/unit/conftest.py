"""Airflow's home is a directory of these tests' own, set before any of them imports Airflow: else it is the user's.

A test that runs again (`--reruns`) has the fixtures of its file made anew: topics, offsets and groups that its first
run has left there would have it fail again, whatever was the matter at first.
"""

from typing import Any

import pytest

from tests.support import airflow_home

airflow_home.prepare()

of_this_file: dict[pytest.FixtureDef[Any], Any] = {}
"""The fixtures of the file whose tests run, each with the request by which it was made."""


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
    if fixturedef.scope == "module":
        if any(made.path != request.path for made in of_this_file.values()):
            of_this_file.clear()
        of_this_file[fixturedef] = request


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if getattr(item, "execution_count", 1) > 1:
        for fixture, request in list(of_this_file.items()):
            fixture.finish(request)
        of_this_file.clear()
