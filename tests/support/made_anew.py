"""A plugin of pytest: a test that runs again (`--reruns`) has the fixtures of its file made anew, and the cluster that
integration tests share.

Topics, offsets and groups that its first run has left there would have it fail again, whatever was the matter at first.
"""

from typing import Any

import pytest

of_this_file: dict[pytest.FixtureDef[Any], Any] = {}
"""The fixtures of the file whose tests run, each with the request by which it was made."""
shared: dict[pytest.FixtureDef[Any], Any] = {}
"""Likewise the cluster that the tests of a session share, if one was made."""


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
    if fixturedef.scope == "module":
        if any(made.path != request.path for made in of_this_file.values()):
            of_this_file.clear()
        of_this_file[fixturedef] = request
    elif (fixturedef.scope, fixturedef.argname) == ("session", "cluster"):
        shared[fixturedef] = request


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if getattr(item, "execution_count", 1) > 1:
        for made in (of_this_file, shared):
            for fixture, request in list(made.items()):
                fixture.finish(request)
            made.clear()
