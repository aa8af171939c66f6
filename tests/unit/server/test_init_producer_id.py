"""InitProducerId: a fresh id and epoch 0 for whoever asks without a transactional id, in every version."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.server.handlers import init_producer_id
from logyard.broker.server.request import Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services

KEY = 22


class Channel:
    """Hands out ids, until there are none."""

    def __init__(self, *ids: int) -> None:
        self.ids = list(ids)

    async def next(self) -> int:
        if not self.ids:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids from the controller yet")
        return self.ids.pop(0)


async def ask(channel: Channel, version: int, **fields: Any) -> Any:
    fields = {"transactional_id": None, "transaction_timeout_ms": 1000, **fields}
    body = memoryview(bytearray(codec.encode_request(KEY, version, 1, "", fields)))[
        14 + codec.is_flexible(KEY, version) :
    ]
    message = codec.decode_request(KEY, version, body)
    request = Request(KEY, version, 1, "", body, Session(1, "PLAINTEXT", "127.0.0.1"))
    services = cast(Services, SimpleNamespace(producer_ids=channel, rights=EverythingAllowed()))
    answer = await init_producer_id.handle(services, request, message)
    return codec.decode_response(KEY, version, memoryview(codec.encode_response(KEY, version, 1, answer))[4:])[1]


@pytest.mark.parametrize("version", range(6))
async def test_every_version_gets_a_fresh_id(version: int) -> None:
    channel = Channel(5, 6)
    first, second = await ask(channel, version), await ask(channel, version)
    assert [(a.error_code, a.producer_id, a.producer_epoch) for a in (first, second)] == [(0, 5, 0), (0, 6, 0)]


async def test_what_an_idempotent_producer_had_before_is_not_taken_up_again() -> None:
    answer = await ask(Channel(8), 4, producer_id=5, producer_epoch=3)
    assert (answer.producer_id, answer.producer_epoch) == (8, 0)


async def test_without_ids_it_is_to_be_tried_again() -> None:
    with pytest.raises(ApiError) as refusal:
        await ask(Channel(), 4)
    assert refusal.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
async def test_half_a_pair_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ApiError) as refusal:
        await ask(Channel(1), 4, **fields)
    assert refusal.value.code == ErrorCode.INVALID_REQUEST
