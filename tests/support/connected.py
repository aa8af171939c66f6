"""One connection of a broker without sockets: feed it bytes, and look at what it wrote."""

import asyncio
import struct
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.server.admission import RequestMemory
from logyard.broker.server.api_table import APIS
from logyard.broker.server.connection import (
    Connection,
)
from logyard.broker.server.request import Encoded, Session
from logyard.broker.server.unread_answers import UnreadAnswers

PRODUCE, OTHER = 0, 3


class Wire:
    """The transport's twin: what was written, and whether reading is on."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.written.append(b"".join(bytes(p) for p in pieces))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 4000)


class Server:
    """Answers every frame with itself, at once or when told to."""

    def __init__(
        self, frame_bytes_max: int = 1 << 24, memory: RequestMemory | None = None, answers: UnreadAnswers | None = None
    ) -> None:
        self.frames: list[bytes] = []
        self.held: dict[bytes, asyncio.Future[Encoded]] = {}
        self.hold = False
        self.now_s, self.frame_takes_s = 1.0, 0.0
        self.pieces = b""
        self.wire = Wire()
        self.connection = Connection(
            self,
            "L",
            1,
            frame_bytes_max,
            lambda c: True,
            lambda c: None,
            memory,
            answers,
        )
        self.connection.clock = lambda: self.now_s
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]

    def may_pipeline(self, api_key: int) -> bool:
        return api_key == PRODUCE

    def has_small_answer(self, api_key: int) -> bool:
        return api_key in APIS and APIS[api_key].small_answer

    def __call__(self, session: Session, frame: memoryview) -> "Encoded | asyncio.Future[Encoded]":
        taken = bytes(frame)
        self.frames.append(taken)
        self.now_s += self.frame_takes_s
        if taken[2:] == b"refuse":
            raise CorruptData("refused")
        if taken[2:] == b"mistake":
            raise RuntimeError("nobody thought of it")
        if taken[2:] == b"no answer":
            return None
        if not self.hold:
            return [taken[:3], taken[3:]] if taken == self.pieces else taken
        self.held[taken] = asyncio.get_running_loop().create_future()
        return self.held[taken]

    def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            buffer = self.connection.get_buffer(-1)
            taken = min(len(buffer), len(view))
            buffer[:taken] = view[:taken]
            self.connection.buffer_updated(taken)
            view = view[taken:]

    async def answer(self, frame: bytes) -> None:
        self.held[frame].set_result(frame)
        await asyncio.sleep(0)


def frame(key: int, body: bytes) -> bytes:
    return struct.pack(">h", key) + body


def sized(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(f)) + f for f in frames)
