"""FindCoordinator where there is no coordinator to be found."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.server.handlers import find_coordinator


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.INVALID_REQUEST)],
)
@pytest.mark.parametrize("version", [1, 3, 4, 6])
async def test_what_is_not_coordinated_here_is_refused_for_good(version: int, key_type: int, code: ErrorCode) -> None:
    message = SimpleNamespace(key_type=key_type, key="t", coordinator_keys=["t"])
    request = cast(Any, SimpleNamespace(api_version=version))
    answer = cast(Any, await find_coordinator.handle(cast(Any, None), request, message))
    found = answer["coordinators"][0] if version >= 4 else answer
    assert (found["error_code"], found["node_id"]) == (code, -1)
