"""What a second process behind one port would cost: the bare server alone, and one that hands requests to another.

    python -m tests.benchmarks.cores [--requests N]

A partition has one log, and its log one writer. With SO_REUSEPORT the kernel gives each connection to one of several
loops, whatever its requests are about: with two loops half of the requests are for partitions of the other. They have
to be handed over, and the answers back. Each row is CPU µs of all servers for a Produce of 279 bytes, 50 under way.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import deque
from pathlib import Path

import uvloop

from tests.benchmarks import frames, harness
from tests.benchmarks.bare_server import Bare
from tests.benchmarks.harness import Row, Server, Wire

ROUNDS = 6


class Owner(asyncio.Protocol):
    """The process that has the log, seen by the one that has the connection: frames go there, answers come back."""

    def __init__(self) -> None:
        self._waiting: deque[Handing] = deque()
        self._data = b""
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, frame: memoryview, who: "Handing") -> None:
        self._waiting.append(who)
        self._out.append(len(frame).to_bytes(4, "big") + bytes(frame))

    def flush(self) -> None:
        self._transport.write(b"".join(self._out))  # type: ignore[attr-defined]
        self._out.clear()

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        at, answers = 0, dict[Handing, list[bytes]]()
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            answers.setdefault(self._waiting.popleft(), []).append(data[at:end])
            at = end
        self._data = data[at:]
        for who, found in answers.items():
            who.answer(found)


class Handing(Bare):
    """A connection of which every request is the other process's."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(-1)
        self._owner = owner

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self._owner.flush()

    def _answer(self, frame: memoryview) -> list[bytes]:
        self._owner.send(frame, self)
        return []

    def answer(self, found: list[bytes]) -> None:
        self._transport.write(b"".join(found))  # type: ignore[attr-defined]


async def hand_on(port: int) -> None:
    """Serve, and hand everything to the bare server of that port."""
    loop = asyncio.get_running_loop()
    _, owner = await loop.create_connection(Owner, "127.0.0.1", port)
    server = await loop.create_server(lambda: Handing(owner), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def measure(directory: Path, requests: int) -> list[Row]:
    frame = frames.produce(200, 1)
    with (
        harness.bare_server(directory / "log") as bare,
        harness.started("tests.benchmarks.cores", "--hand-on", str(bare.port)) as handing,
    ):
        rows = []
        for window, count in ((harness.WINDOW, requests), (1, requests // 5)):
            ways = Wire(bare, window), Wire(handing, window)
            alone, handed = (_cpu_us((bare, handing), wire, frame, count) for wire in ways)
            how = f"{window} under way" if window > 1 else "one at a time"
            rows += [
                Row(f"bare Produce, {how}, by the process that has the log", alone, "µs"),
                Row(f"bare Produce, {how}, by way of another process", handed, "µs", ceiling=alone),
            ]
    return rows


def _cpu_us(servers: tuple[Server, ...], wire: Wire, frame: bytes, requests: int) -> float:
    """CPU µs of all servers for a request, in the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        before = sum(server.cpu_s() for server in servers)
        wire.exchange(frame, requests)
        best = min(best, sum(server.cpu_s() for server in servers) - before)
    return best / requests * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--hand-on", type=int, metavar="PORT", help="be the second process")
    options = parser.parse_args()
    if options.hand_on:
        uvloop.run(hand_on(options.hand_on))
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        rows = measure(Path(directory), options.requests)
    print(*(row.text() for row in rows), sep="\n")
    print(json.dumps({"load": os.getloadavg()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
