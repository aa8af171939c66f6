"""From frame to handler and back: versions, unknown keys, refusals, failures."""

import asyncio
import importlib
import struct
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from logyard.broker.metadata.features import FinalizedFeatures
from logyard.broker.protocol import codec
from logyard.broker.security.quotas import Quotas, Windows
from logyard.broker.server.api import Api, Handler
from logyard.broker.server.api_table import APIS, VERSIONS, by_key
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.handlers import produce
from logyard.broker.server.large_requests import LargeRequests
from logyard.broker.server.request import Fields, Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from logyard.broker.znodes.ops import SessionExpired

HEARTBEAT, API_VERSIONS = 12, 18
SESSION = Session(1, "PLAINTEXT", "127.0.0.1")


def services(**quotas: str) -> Any:
    configs = DynamicConfigs(1, lambda overrides: TopicConfig())
    configs.set_quota(DEFAULT_ENTITY, None, quotas)
    quotas_of = Quotas(configs, Windows(), Windows(), lambda: 0.0)
    return SimpleNamespace(
        api_versions=VERSIONS,
        features=FinalizedFeatures(),
        quotas=quotas_of,
        rights=EverythingAllowed(),
        large_requests=LargeRequests(),
    )


def dispatcher(*apis: Api, **quotas: str) -> Dispatcher:
    return Dispatcher(services(**quotas), apis)


def frame_of(api_key: int, version: int, **fields: Any) -> memoryview:
    return memoryview(bytearray(codec.encode_request(api_key, version, 77, "test", fields)))[4:]


def heartbeat(answer: Any) -> Api:
    def handle(services: Services, request: Request, message: Any) -> Fields:
        if isinstance(answer, Exception):
            raise answer
        return {"error_code": answer}

    return Api(HEARTBEAT, (0, 4), Handler(message=handle))


def answered(encoded: Any, api_key: int, version: int) -> Any:
    correlation_id, body = codec.decode_response(api_key, version, memoryview(encoded)[4:])
    assert correlation_id == 77
    return body


def test_an_api_without_a_full_row_does_not_start() -> None:
    whole = APIS[HEARTBEAT]
    with pytest.raises(ValueError, match="API key 999"):
        Api(999, (0, 1), whole.handler)
    with pytest.raises(ValueError, match="Heartbeat is served in no version"):
        Api(HEARTBEAT, (3, 2), whole.handler)
    with pytest.raises(ValueError, match="either"):
        Handler()
    with pytest.raises(ValueError, match="same API key"):
        by_key((whole, whole))


def test_every_handler_is_registered_once() -> None:
    folder = Path(produce.__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    handlers = [importlib.import_module(f"logyard.broker.server.handlers.{name}").HANDLER for name in names]
    assert sorted(map(id, handlers)) == sorted(id(api.handler) for api in APIS.values())


def test_a_handler_s_file_has_the_name_of_its_api() -> None:
    for api in APIS.values():
        handle: Any = api.handler.raw or api.handler.message
        assert handle.__module__.rpartition(".")[2].replace("_", "") == api.name.lower()


def test_answer_and_refusals_become_error_codes() -> None:
    frame = frame_of(HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m")
    for answer, code in (
        (0, 0),
        (ApiError(ErrorCode.UNKNOWN_MEMBER_ID), 25),
        (RuntimeError("a bug"), -1),
        (SessionExpired("meanwhile"), 7),
    ):
        body = answered(dispatcher(heartbeat(answer))(SESSION, frame), HEARTBEAT, 3)
        assert body.error_code == code


async def test_a_coroutine_is_awaited_and_its_failure_answered() -> None:
    async def handle(services: Services, request: Request, message: Any) -> Fields:
        await asyncio.sleep(0)
        if message.group_id == "bad":
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return {"error_code": 0}

    made = dispatcher(Api(HEARTBEAT, (0, 4), Handler(message=handle)))
    for group, code in (("good", 0), ("bad", 16)):
        pending = made(SESSION, frame_of(HEARTBEAT, 4, group_id=group, generation_id=1, member_id="m"))
        assert isinstance(pending, asyncio.Future)
        assert answered(await pending, HEARTBEAT, 4).error_code == code
    assert made.counters[HEARTBEAT].requests == 2
    assert made.counters[HEARTBEAT].errors == 1


def test_future_api_versions_is_answered_with_the_range_to_come_back_with() -> None:
    made = dispatcher(APIS[API_VERSIONS])
    frame = memoryview(struct.pack(">hhih", API_VERSIONS, 99, 77, -1) + b"\0garbage")
    body = answered(made(SESSION, frame), API_VERSIONS, 0)
    assert body.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(k.api_key, k.min_version, k.max_version) for k in body.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(("key", "version"), [(HEARTBEAT, 9), (999, 0), (-1, 0)])
def test_anything_else_unknown_closes_the_connection(key: int, version: int) -> None:
    made = dispatcher(heartbeat(0))
    with pytest.raises(CorruptData):
        made(SESSION, memoryview(struct.pack(">hhih", key, version, 1, -1) + b"\0" * 20))


def test_api_versions_lists_what_is_served() -> None:
    body = answered(dispatcher(APIS[API_VERSIONS])(SESSION, frame_of(API_VERSIONS, 2)), API_VERSIONS, 2)
    assert {k.api_key: (k.min_version, k.max_version) for k in body.api_keys} == dict(VERSIONS)


async def test_a_request_quota_is_told_in_the_answer_and_mutes_the_connection() -> None:
    muted: list[int] = []
    session = Session(1, "PLAINTEXT", "127.0.0.1", mute=muted.append)
    frame = frame_of(HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m")

    async def later(services: Services, request: Request, message: Any) -> Fields:
        await asyncio.sleep(0)
        return {"error_code": 0}

    slow = Api(HEARTBEAT, (0, 4), Handler(message=later))
    for handler in (heartbeat(0), slow):
        outcome: Any = dispatcher(handler, request_percentage="0.0000001")(session, frame)
        encoded = await outcome if isinstance(outcome, asyncio.Future) else outcome
        # Far more than a window's worth of waiting is due; one window (a second) is the most that is asked.
        assert answered(encoded, HEARTBEAT, 3).throttle_time_ms == 1000
    assert muted == [1000, 1000]
    encoded = dispatcher(heartbeat(0), request_percentage="1000")(session, frame)
    assert answered(encoded, HEARTBEAT, 3).throttle_time_ms == 0
    assert len(muted) == 2


async def test_a_cancelled_wait_reaches_the_handler_through_the_stop_watch() -> None:
    seen: list[str] = []

    async def waits(services: Services, request: Request, message: Any) -> Fields:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return {}

    frame = frame_of(HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m")
    task: Any = dispatcher(Api(HEARTBEAT, (0, 4), Handler(message=waits)), request_percentage="1")(SESSION, frame)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == ["cancelled"]


async def test_a_large_request_is_read_and_answered_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JoinGroup may name 100,000 protocols in a megabyte: reading it takes a third of a second."""
    on_the_loop, handled, coded = threading.get_ident(), [], []

    def handle(services: Services, request: Request, message: Any) -> Fields:
        handled.append(threading.get_ident())
        assert len(message.protocols) == 5000
        return {"error_code": 25}

    def noted(work: Any) -> Any:
        def call(*asked: Any) -> Any:
            coded.append(threading.get_ident())
            return work(*asked)

        return call

    for name in ("decode_large_request", "encode_response"):
        monkeypatch.setattr(codec, name, noted(getattr(codec, name)))
    loop = asyncio.get_running_loop()
    records_hold_all_threads = loop.create_future()
    broker = services()
    broker.replicas = SimpleNamespace(
        in_disk_thread=lambda work: loop.run_in_executor(None, work),
        in_record_thread=lambda work: records_hold_all_threads,
    )
    large = Dispatcher(broker, (Api(11, (0, 9), Handler(message=handle)),))
    protocols = [{"name": f"p{n}", "metadata": b""} for n in range(5000)]
    fields = {"group_id": "g", "member_id": "", "protocol_type": "c", "protocols": protocols}
    frame = frame_of(11, 5, **fields)
    answer = large(SESSION, frame)
    assert isinstance(answer, asyncio.Future)
    frame[:] = bytes(len(frame))  # the receive buffer is used again
    body = answered(await asyncio.wait_for(answer, 20), 11, 5)
    assert body.error_code == 25
    assert handled == [on_the_loop]
    assert len(coded) == 2
    assert on_the_loop not in coded
    with pytest.raises(CorruptData):
        await cast(Any, large(SESSION, frame_of(11, 5, **fields)[:-5]))
