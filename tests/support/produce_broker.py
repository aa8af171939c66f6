"""One leading broker over a connection whose other end is the test: Produce requests in, their answers out.

    broker = Broker(compression_type="producer")  # keywords are the topic's config
    broker.send(made(400, 100), acks=1)  # one request for each batch; `feed` takes frames
    assert await broker.answered(1) == [(ErrorCode.NONE, 0)]
    assert [header.count for header in broker.kept()] == [400]

Connection, handler, replicas and logs are the product's; threads are the loop's own, and `broker.threaded` counts what
they are given. `broker.world` is the replicas' world (replica_world.py), `another_connection` one more client.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.records import batch as records
from logyard.broker.server.connection import Connection
from logyard.broker.server.handlers import produce
from logyard.broker.server.request import Dispatch, Encoded, Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from tests.support.disk_logs import NOW_MS
from tests.support.replica_world import T0, World

PRODUCE, VERSION = 0, 9


class Wire:
    """The transport's twin: the answers that were written."""

    def __init__(self) -> None:
        self.answers: list[Any] = []  # the first partition's of each
        self.whole: list[Any] = []
        self.closed = False
        self.version = VERSION

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            size = int.from_bytes(view[:4], "big")
            fields = codec.decode_response(PRODUCE, self.version, view[4 : 4 + size])[1]
            self.answers.append(fields.responses[0].partition_responses[0])
            self.whole.append(fields.responses)
            view = view[4 + size :]

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(bytes(piece) for piece in pieces))

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 4000)


class End:
    """The client's end of one connection."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.wire = Wire()
        self.connection = Connection(dispatch, "L", 1, 1 << 24, lambda c: True, lambda c: None)
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]

    def feed(self, frames: bytes) -> None:
        view = memoryview(frames)
        while view:
            buffer = self.connection.get_buffer(-1)
            taken = min(len(buffer), len(view))
            buffer[:taken] = view[:taken]
            self.connection.buffer_updated(taken)
            view = view[taken:]

    async def answered(self, count: int) -> list[tuple[ErrorCode, int]]:
        async with asyncio.timeout(20):
            while len(self.wire.answers) < count:
                await asyncio.sleep(0.001)
        return [(ErrorCode(answer.error_code), answer.base_offset) for answer in self.wire.answers]


class Broker:
    """One leading broker whose only topic wants gzip and has so many partitions, and one connection to it."""

    def __init__(self, partitions: int = 1, **config: Any) -> None:
        loop = asyncio.get_running_loop()
        self.world = World()
        self.logs = self.world.logs
        self.world.config = TopicConfig(**{"compression_type": "gzip"} | config)
        hosted = self.world.replicas.hosted
        hosted.new_pending = loop.create_future
        self.threaded = 0

        def run_blocking(work: Callable[[], Any]) -> Any:
            self.threaded += 1
            return loop.run_in_executor(None, work)

        hosted.run_blocking = run_blocking
        self.world.clock.advance(NOW_MS / 1000 - self.world.clock.now_ms() / 1000)
        self.world.tell(*[self.world.order(TopicPartition(T0.topic, n), replicas=(1,)) for n in range(partitions)])
        quotas = SimpleNamespace(produce=None, request=None)
        made = SimpleNamespace(replicas=self.world.replicas, quotas=quotas, turns=Turns(), rights=EverythingAllowed())
        self.services = cast(Services, made)
        self.end = End(self)
        self.wire, self.connection = self.end.wire, self.end.connection
        self.feed, self.answered = self.end.feed, self.end.answered

    def another_connection(self) -> "End":
        return End(self)

    def may_pipeline(self, api_key: int) -> bool:
        return api_key == PRODUCE

    def has_small_answer(self, api_key: int) -> bool:
        return False

    def __call__(self, session: Session, frame: memoryview) -> "Encoded | asyncio.Future[Encoded]":
        key, version, correlation_id, client_id, body = parse_request_header(frame)
        return produce.handle(self.services, Request(key, version, correlation_id, client_id, body, session))

    def send(self, *batches: bytes | bytearray, acks: int = 1) -> None:
        self.feed(b"".join(codec.encode_request(PRODUCE, VERSION, 1, "c", produce_of(b, acks)) for b in batches))

    def kept(self) -> list[records.BatchHeader]:
        return [records.parse_header(memoryview(stored.data)) for stored in self.logs.contents(T0)]


def produce_of(batch: bytes | bytearray, acks: int, partitions: Iterable[int] = (0,)) -> Any:
    parts = [{"index": n, "records": bytes(batch)} for n in partitions]
    topic = {"name": T0.topic, "partition_data": parts}
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": [topic]}


def made(count: int, size: int, **fields: Any) -> bytearray:
    chance = random.Random(count)
    return records.build(
        [records.Record(n, NOW_MS, None, chance.randbytes(size // 2).hex().encode()) for n in range(count)], **fields
    )


idempotent = partial(made, base_offset=0, producer_id=5, producer_epoch=0)
