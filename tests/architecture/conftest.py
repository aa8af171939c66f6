"""Files are parsed without the collector, which would look at each tree while it is there: trees have no cycles."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
