"""FindCoordinator where there is no coordinator to be found."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.server.handlers import find_coordinator
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.turns import Turns


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.INVALID_REQUEST)],
)
@pytest.mark.parametrize("version", [1, 3, 4, 6])
async def test_what_is_not_coordinated_here_is_refused_for_good(version: int, key_type: int, code: ErrorCode) -> None:
    message = SimpleNamespace(key_type=key_type, key="t", coordinator_keys=["t"])
    request = cast(Any, SimpleNamespace(api_version=version))
    services = cast(Any, SimpleNamespace(turns=Turns()))
    answer = cast(Any, await find_coordinator.handle(services, request, message))
    found = answer["coordinators"][0] if version >= 4 else answer
    assert (found["error_code"], found["node_id"]) == (code, -1)


async def test_a_missing_topic_is_created_once_for_all_keys() -> None:
    """Else each key of thousands would wait for the controller, one behind the other."""
    created: list[str] = []

    async def create_internal(name: str) -> ErrorCode:
        created.append(name)
        return ErrorCode.LEADER_NOT_AVAILABLE

    services = cast(
        Any,
        SimpleNamespace(
            turns=Turns(),
            rights=EverythingAllowed(),
            metadata=set[str](),
            auto_create=SimpleNamespace(create_internal=create_internal),
        ),
    )
    message = SimpleNamespace(key_type=0, coordinator_keys=[f"g{number}" for number in range(1000)])
    request = cast(Any, SimpleNamespace(api_version=4, api_key=10, session=None))
    answer = cast(Any, await find_coordinator.handle(services, request, message))
    assert {found["error_code"] for found in answer["coordinators"]} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (len(answer["coordinators"]), created) == (1000, ["__consumer_offsets"])
